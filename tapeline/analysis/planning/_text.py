"""Plan for a person."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tapeline.cli import size_text, table


def plan_text(plan: Mapping[str, Any]) -> str:
    """Returns a plan, given as JSON values, as text."""
    asked, hardware = plan["asked"], plan.get("hardware")
    mesh = ",".join(f"{axis}={size}" for axis, size in plan["mesh"].items())
    on = "" if hardware is None else f" on {hardware['name']}"
    lines = [f"mesh {mesh}{on}: {plan['devices']} device{'s' if plan['devices'] > 1 else ''}", *_memory(plan)]
    lines += [f"note: {note}" for note in plan["notes"]]
    for entry in asked["entry_points"]:
        lines += _collectives(entry)
    if hardware is None:
        return "\n".join(lines)
    lines += _times(asked)
    largest = plan["largest_batch"]
    if largest is None:
        lines.append("largest batch: none fits")
    elif largest["batch"] == asked["batch"]:
        lines.append(f"largest batch: {largest['batch']}, as asked")
    else:
        lines += [f"largest batch: {largest['batch']}", *_times(largest)]
    return "\n".join(lines)


def _memory(plan: Mapping[str, Any]) -> list[str]:
    asked = plan["asked"]
    held = asked["bytes_per_device"]
    packed = f", {size_text(held['packed_weights'])} of them packed" if held["packed_weights"] else ""
    rows = [("weights", size_text(held["weights"]) + packed)]
    if held["caches"]:
        kinds = ", ".join(f"{kind} {size_text(size)}" for kind, size in held["caches"].items())
        rows.append(("caches", f"{size_text(sum(held['caches'].values()))}: {kinds}"))
    rows.append(("activations", size_text(held["activations"])))
    total = size_text(held["total"])
    if "fits" in plan:
        verdict = "it fits" if plan["fits"] else "it does NOT fit"
        total += f" of {size_text(plan['hardware']['memory_bytes'])}: {verdict}"
    return [f"per device, batch {asked['batch']}:", *table([*rows, ("together", total)])]


def _collectives(entry: Mapping[str, Any]) -> list[str]:
    """Returns the exchanges of one call, those of equal size together."""
    counts: Counter[tuple[str, int, str, int]] = Counter()
    for row in entry["collectives"]:
        counts[row["kind"], row["bytes"], row["axes"], row["devices"]] += round(row["calls"])
    if not counts:
        return [f"{entry['name']}: devices exchange nothing"]
    rows = [
        (f"{calls} x", kind, size_text(size), f"among {devices} along {axes}")
        for (kind, size, axes, devices), calls in sorted(counts.items(), key=lambda item: -item[0][1] * item[1])
    ]
    return [f"{entry['name']}: devices exchange", *table(rows)]


def _times(batch: Mapping[str, Any]) -> list[str]:
    head = (f"least time, batch {batch['batch']}", "compute", "memory", "links", "together", "bound by", "tokens/s")
    return table([head, *map(_row, batch["entry_points"])], indent="")


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    tokens, seconds = entry["tokens"], entry["seconds"]
    rate = "" if tokens is None else f"{entry['tokens_per_second']:,.1f}"
    taken = "" if tokens is None else f", {tokens} token{'s' if tokens > 1 else ''}"
    parts = (_seconds(seconds[name]) for name in ("compute", "memory", "link", "total"))
    return (entry["name"] + taken, *parts, entry["bound"], rate)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
