"""A diagnosis for a person: tables that fit into an issue."""

from collections.abc import Iterator
from typing import Final

from tapeline.cli import size_text, table
from tapeline.command._diagnosis import Diagnosis, EngineState

_NO_JAX: Final = ("none: JAX is not installed (pip install 'tapeline[jax]')",)


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """Returns the facts as plain text."""
    return "\n".join(_lines(diagnosis)) + "\n"


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    yield "versions"
    yield from table(list(diagnosis.versions.items()))
    yield "machine"
    yield from table(_machine(diagnosis))
    yield "kernels of this CPU"
    yield from table([(kernel.name, _used(kernel.missing)) for kernel in diagnosis.kernels])
    yield from table([(kernel,) for kernel in diagnosis.registered_kernels])
    yield "engines"
    yield from table([(engine.name, _devices(engine, diagnosis)) for engine in diagnosis.engines])
    if diagnosis.plugins:
        yield "plugins"
        yield from table(list(diagnosis.plugins.items()))
    yield "devices of IREE"
    yield from table([(d.name, "yes" if d.present else "absent", d.detail) for d in diagnosis.devices])
    yield "devices of JAX"
    yield from table([(device,) for device in diagnosis.jax_devices or _NO_JAX])
    yield "caches"
    yield from table([(c.name, size_text(c.nbytes), f"{c.entries} entries", str(c.path)) for c in diagnosis.caches])
    yield "hub"
    yield from table(_hub(diagnosis))


def _devices(engine: EngineState, diagnosis: Diagnosis) -> str:
    absent = diagnosis.absent_devices.get(engine.name)
    behind = f" (absent: {', '.join(absent)})" if absent else ""
    return f"{', '.join(engine.devices) or 'no device'}{behind}"


def _machine(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    free = f", {size_text(diagnosis.memory_available_bytes)} of it free" if diagnosis.memory_available_bytes else ""
    return [
        ("system", diagnosis.system),
        ("CPU", f"{diagnosis.cpu or 'unknown'}, {diagnosis.cores} cores for this process"),
        ("memory", f"{size_text(diagnosis.memory_bytes)}{free}"),
    ]


def _hub(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    hub = diagnosis.hub
    return [
        ("address", f"{hub.endpoint}{' (offline)' if hub.offline else ''}"),
        ("login", "a token is there" if hub.logged_in else "none: public models only (`hf auth login`)"),
    ]


def _used(missing: tuple[str, ...]) -> str:
    return f"not used: the CPU lacks {', '.join(missing)}" if missing else "used"
