"""Texts of boxes, ports and functions in drawings."""

from typing import Final

from tapeline.analysis.outline._outline import Box, FunctionOutline, Port

_MAX_OPERATIONS: Final = 3
_MAX_TYPES: Final = 3
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_ARROW: Final = "\N{RIGHTWARDS ARROW}"
# Ops that only move elements; others describe a box better.
_MOVES: Final = frozenset({"reshape", "broadcast_in_dim", "transpose", "convert", "slice", "optimization_barrier"})


def box_lines(box: Box, prefix: str, made: list[str]) -> list[str]:
    """Returns the lines of a box: title, ops, weights and results.

    Args:
        box: box to describe.
        prefix: path of the block that the box is in.
        made: types of the results that other boxes use.
    """
    lines = [box_title(box, prefix)]
    if box.calls is None:
        lines.append(operations_text(box.operations))
    if box.parameters:
        kinds = list(box.parameters.values())
        lines.append(f"weights {_some(kinds)}" if len(kinds) > 1 else f"weight {kinds[0]}")
    if made:
        lines.append(f"{_ARROW} {_some(made)}")
    return lines


def box_title(box: Box, prefix: str) -> str:
    """Returns the path of a box, relative to its block."""
    if not box.path:
        return "(root)"
    inside = prefix and box.path.startswith(f"{prefix}.")
    return box.path[len(prefix) + 1 :] if inside else box.path


def times(count: int) -> str:
    """Returns a count as text."""
    return f"{_TIMES}{count}"


def operations_text(operations: dict[str, int]) -> str:
    """Returns the most frequent ops as text; ops that only move elements come last."""
    order = sorted(operations.items(), key=lambda operation: (operation[0] in _MOVES, -operation[1]))
    shown = [name if count == 1 else f"{name} {times(count)}" for name, count in order[:_MAX_OPERATIONS]]
    rest = sum(count for _, count in order[_MAX_OPERATIONS:])
    return ", ".join([*shown, f"{rest} more"] if rest else shown)


def port_lines(port: Port) -> list[str]:
    """Returns name, count and type of a port, in lines."""
    return [f"{port.name} {times(port.count)}" if port.count > 1 else port.name, port.type]


def function_title(function: FunctionOutline) -> str:
    """Returns a function's name, number of ops and number of calls."""
    calls = "" if function.kind == "entry_point" else f", called {times(function.call_sites)}"
    return f"{function.name} ({function.operations} ops{calls})"


def prefix_of(function: FunctionOutline) -> str:
    """Returns the module path of the block of a kernel; empty for other functions."""
    if function.kind != "kernel":
        return ""
    first = next((item.path for item in function.items if isinstance(item, Box)), "")
    name = function.name.removeprefix("block.")
    while name and not (first == name or first.startswith(f"{name}.")):
        name = name.rpartition(".")[0]
    return name


def _some(kinds: list[str]) -> str:
    distinct = list(dict.fromkeys(kinds))
    shown = [kind if (n := kinds.count(kind)) == 1 else f"{kind} {times(n)}" for kind in distinct[:_MAX_TYPES]]
    return ", ".join([*shown, "..."] if len(distinct) > _MAX_TYPES else shown)
