"""Kernel calls of a bundle, and the origin of their configurations."""

from typing import Any

from autotune import CacheEntry, Key, PersistentCache, from_json, to_json
from tapeline import cli
from tapeline.bundle import Bundle
from tapeline.tuning._explain import cfg_text, gain, seconds_text, to_text


def bundle_calls(bundle: Bundle, cache: PersistentCache[Any], op: str | None = None) -> list[dict[str, Any]]:
    """Returns the calls of a bundle that was exported with tuned kernels.

    Args:
        bundle: opened bundle.
        cache: cache with the configurations that are remembered now.
        op: op of the calls to return, with or without its version; all ops if None.

    Returns:
        The fields of each call in ``kernel_config.json``, and ``now``: the configuration that another export would
        take, which is None if nothing is remembered and the heuristic would decide.
    """
    calls = []
    for call in bundle.config.kernel_calls:
        if op in (None, call["op_id"], call["key"][1]):
            entry = cache.find(Key(*call["key"]))
            calls.append({**call, "now": None if entry is None else to_json(entry.cfg)})
    return calls


def bundle_text(bundle: Bundle, calls: list[dict[str, Any]], cache: PersistentCache[Any]) -> str:
    """Returns a line per call: its configuration, the source, and the configuration that a new export would use."""
    if not calls:
        return f"{bundle.path}: no kernels were chosen for it: export it with kernels=tuned\n"
    rows = [("op", "call", "from", "configuration", "time", "gain", "another export")]
    for call in calls:
        entry = cache.find(Key(*call["key"]))
        took, won = _measured(entry, call["cfg"])
        row = call["key"][1], call["key"][2], call["provenance"], cfg_text(from_json(call["cfg"])), took, won
        rows.append((*row, _now(call, entry)))
    return "\n".join(cli.table(rows, indent="")) + "\n"


def _measured(entry: CacheEntry[Any] | None, cfg: Any) -> tuple[str, str]:
    if entry is None or to_json(entry.cfg) != cfg:
        return "-", "-"
    times = {to_text(m.cfg): m.seconds for m in entry.measurements if m.status == "ok"}
    seconds, won = times.get(to_text(entry.cfg)), gain(entry)
    return "-" if seconds is None else seconds_text(seconds), "-" if won is None else f"x{won:.2f}"


def _now(call: dict[str, Any], entry: CacheEntry[Any] | None) -> str:
    if entry is None:
        return "by heuristics" if call["provenance"] == "heuristic" else "by heuristics: nothing is remembered any more"
    if to_json(entry.cfg) == call["cfg"]:
        same = entry.provenance == call["provenance"]
        return "the same" if same else f"the same, {entry.provenance} since"
    return f"{cfg_text(entry.cfg)}, {entry.provenance} since"
