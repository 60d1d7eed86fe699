"""Entries as tables, as explanations and as JSON values."""

import json
import time
from collections.abc import Sequence
from typing import Any

from autotune import (
    KERNEL_CLASSES,
    CacheEntry,
    Environment,
    Measurement,
    compiler_named,
    host_environment,
    to_json,
)
from autotune.iree_compiler import IreeCompiler
from lang_core import TapelineError
from tapeline import cli


def cfg_text(cfg: Any) -> str:
    """Returns the fields of a configuration in one line."""
    encoded = to_json(cfg)
    fields = encoded.get("fields") or encoded.get("__dict__") if isinstance(encoded, dict) else None
    return " ".join(f"{name}={value}" for name, value in fields.items()) if fields else json.dumps(encoded)


def seconds_text(seconds: float) -> str:
    """Returns a duration with three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def specs_text(specs: Any) -> str:
    """Returns the arguments of a call, given as JSON values, in one line, such as ``float32[2,3]``."""
    if isinstance(specs, dict) and set(specs) == {"array"}:
        shape, dtype = specs["array"]
        return f"{dtype}[{','.join(map(str, shape))}]"
    if isinstance(specs, dict) and len(specs) == 1 and isinstance(next(iter(specs.values())), list):
        kind, parts = next(iter(specs.items()))
        if kind == "mapping":
            return ", ".join(f"{specs_text(key)}={specs_text(value)}" for key, value in parts)
        return ", ".join(filter(None, map(specs_text, parts)))
    if isinstance(specs, dict) and set(specs) == {"float"}:
        return f"{float.fromhex(specs['float']):g}" if specs["float"] != "nan" else "nan"
    return str(next(iter(specs.values()))) if isinstance(specs, dict) and specs else str(specs)


def gain(entry: CacheEntry[Any]) -> float | None:
    """Returns the speed relative to the reference, which is measured first; None if it is not known."""
    good = {to_text(m.cfg): m.seconds for m in entry.measurements if m.status == "ok" and m.seconds == m.seconds}
    ours, first = good.get(to_text(entry.cfg)), next(iter(good.values()), None)
    return None if ours is None or first is None or not ours else first / ours


def to_text(cfg: Any) -> str:
    """Returns a text that is equal for equal configurations."""
    return json.dumps(to_json(cfg), sort_keys=True)


def entries_text(entries: Sequence[CacheEntry[Any]]) -> str:
    """Returns a table with a line per entry."""
    if not entries:
        return "nothing is remembered\n"
    rows = [("op", "call", "on", "from", "configuration", "time", "gain", "arguments")]
    for entry in sorted(entries, key=lambda entry: (entry.key.op, entry.key.device, entry.key.call)):
        times = {to_text(m.cfg): m.seconds for m in entry.measurements if m.status == "ok"}
        seconds, won = times.get(to_text(entry.cfg)), gain(entry)
        rows.append(
            (
                entry.key.op,
                entry.key.call,
                "|".join(entry.key.device.split("|")[:2]),
                entry.provenance,
                cfg_text(entry.cfg),
                "-" if seconds is None else seconds_text(seconds),
                "-" if won is None else f"x{won:.2f}",
                specs_text(entry.specs) if entry.specs is not None else "-",
            )
        )
    return "\n".join(cli.table(rows, indent="")) + "\n"


def explanation(entry: CacheEntry[Any]) -> str:
    """Returns why a call has its configuration, and whether that applies to this process."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.created))
    rows = [
        ("op", entry.key.op),
        ("call", f"{entry.key.call}: {specs_text(entry.specs) if entry.specs is not None else 'not noted'}"),
        ("configuration", cfg_text(entry.cfg)),
        ("from", f"{entry.provenance}, {when}"),
        ("device", entry.key.device),
        *((name, ", ".join(value) if isinstance(value, list | tuple) else str(value)) for name, value in _more(entry)),
        ("holds here", _holds(entry)),
    ]
    lines = cli.table(rows, indent="")
    if entry.measurements:
        lines += ["", f"candidates, the reference first ({len(entry.measurements)}):"]
        lines += cli.table([_measured(m, entry) for m in entry.measurements])
    else:
        lines += ["", "nobody measured: it was set by hand"]
    return "\n".join(lines) + "\n"


def _more(entry: CacheEntry[Any]) -> list[tuple[str, Any]]:
    return [(name, entry.environment[name]) for name in ("cpu", "versions", "flags") if entry.environment.get(name)]


def _measured(measurement: Measurement, entry: CacheEntry[Any]) -> tuple[str, str, str]:
    mark = "*" if to_text(measurement.cfg) == to_text(entry.cfg) else " "
    known = measurement.status == "ok"
    result = seconds_text(measurement.seconds) if known else f"{measurement.status}: {measurement.detail}"
    return mark, cfg_text(measurement.cfg), result


def _holds(entry: CacheEntry[Any]) -> str:
    """Returns whether a call of this process would get the entry, or the differences, as text."""
    here = _environment_here(entry)
    if here is None:
        return f"not known: calls of {entry.key.device.partition('|')[0]} say themselves where they run"
    if here.fingerprint != entry.key.device:
        theirs = entry.environment
        differs = [name for name in ("cpu", "device", "versions", "flags", "mesh") if _differs(theirs, here, name)]
        return f"no: {', '.join(differs) or 'the environment'} differ here, and the call is chosen anew"
    kernel = KERNEL_CLASSES.get(entry.kernel)
    if kernel is None:
        return "yes, if the kernel's source is the same: the kernel is not loaded"
    if entry.key.source and kernel.class_source() != entry.key.source:
        return "no: the kernel's source changed since, and the call is chosen anew"
    return "yes: the persistent tier gives it, where no cfg= or overlay stands before it"


def _differs(theirs: dict[str, Any], here: Environment, name: str) -> bool:
    recorded, ours = theirs.get(name), getattr(here, name)
    return (tuple(recorded) if isinstance(recorded, list) else recorded) != ours


def _environment_here(entry: CacheEntry[Any]) -> Environment | None:
    runtime, _, rest = entry.key.device.partition("|")
    if runtime == "numpy":
        return host_environment()
    try:
        if runtime == "iree":
            return IreeCompiler(rest.split("|")[1]).environment()
        if runtime == "jax":  # JAX is loaded only if an entry needs it
            return compiler_named("jax").environment([])
    except TapelineError:  # the device or the compiler is not available
        return None
    return None


def as_json(entry: CacheEntry[Any]) -> dict[str, Any]:
    """Returns an entry as JSON values."""
    return {
        "op": entry.key.op,
        "call": entry.key.call,
        "device": entry.key.device,
        "source": entry.key.source,
        "cfg": to_json(entry.cfg),
        "provenance": entry.provenance,
        "gain": gain(entry),
        "specs": entry.specs,
        "environment": entry.environment,
        "measurements": [
            {
                "cfg": to_json(m.cfg),
                "seconds": m.seconds if m.status == "ok" else None,
                "status": m.status,
                "detail": m.detail,
            }
            for m in entry.measurements
        ],
    }
