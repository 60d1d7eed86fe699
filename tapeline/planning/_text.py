"""Plan for a person."""

from collections import Counter

from compile_hlo.counting import Work
from tapeline.cli import size_text, table
from tapeline.planning._plan import BatchPlan, DevicePlan, EntryPlan


def plan_text(plan: DevicePlan) -> str:
    """Returns a plan as text."""
    mesh, hardware = plan.layout.mesh, plan.hardware
    on = "" if hardware is None else f" on {hardware.name}"
    lines = [f"mesh {mesh}{on}: {mesh.size} device{'s' if mesh.size > 1 else ''}", *_memory(plan)]
    lines += [f"note: {note}" for note in plan.layout.notes]
    for entry in plan.asked.entries:
        lines += _collectives(entry.name, entry.work)
    if hardware is None:
        return "\n".join(lines)
    lines += _times(plan.asked)
    if plan.largest is None:
        lines.append("largest batch: none fits")
    elif plan.largest.batch == plan.asked.batch:
        lines.append(f"largest batch: {plan.largest.batch}, as asked")
    else:
        lines += [f"largest batch: {plan.largest.batch}", *_times(plan.largest)]
    return "\n".join(lines)


def _memory(plan: DevicePlan) -> list[str]:
    asked = plan.asked
    packed = f", {size_text(asked.packed)} of them packed" if asked.packed else ""
    kinds = ", ".join(f"{kind} {size_text(size)}" for kind, size in asked.caches.items())
    rows = [("weights", size_text(asked.weights) + packed)]
    if asked.caches:
        rows.append(("caches", f"{size_text(sum(asked.caches.values()))}: {kinds}"))
    rows.append(("activations", size_text(asked.activations)))
    total = size_text(asked.total)
    if plan.hardware is not None:
        verdict = "it fits" if plan.fits else "it does NOT fit"
        total += f" of {size_text(int(plan.hardware.memory_bytes))}: {verdict}"
    return [f"per device, batch {asked.batch}:", *table([*rows, ("together", total)])]


def _collectives(name: str, work: Work) -> list[str]:
    """Returns the exchanges of one call, those of equal size together."""
    counts: Counter[tuple[str, int, str, int]] = Counter()
    for row, calls in work.calls.items():
        counts[row.kind, row.bytes, row.axes, row.devices] += round(calls)
    if not counts:
        return [f"{name}: devices exchange nothing"]
    rows = [
        (f"{calls} x", kind, size_text(size), f"among {devices} along {axes}")
        for (kind, size, axes, devices), calls in sorted(counts.items(), key=lambda item: -item[0][1] * item[1])
    ]
    return [f"{name}: devices exchange", *table(rows)]


def _times(batch: BatchPlan) -> list[str]:
    head = (f"least time, batch {batch.batch}", "compute", "memory", "links", "together", "bound by", "tokens/s")
    return table([head, *map(_row, batch.entries)], indent="")


def _row(entry: EntryPlan) -> tuple[str, ...]:
    assert entry.times is not None
    compute, memory, link = entry.times
    rate = "" if entry.tokens is None else f"{entry.tokens / entry.times.total:,.1f}"
    tokens = "" if entry.tokens is None else f", {entry.tokens} token{'s' if entry.tokens > 1 else ''}"
    parts = (_seconds(compute), _seconds(memory), _seconds(link), _seconds(entry.times.total))
    return (entry.name + tokens, *parts, entry.times.bound, rate)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
