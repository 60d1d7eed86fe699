"""Limits on the size of an outline, so that it stays readable for any module."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

from tapeline.analysis.outline._outline import Box, Edge, FunctionOutline, Item, Outline, Repeat, boxes_of

MAX_FUNCTIONS: Final = 64
MAX_BOXES: Final = 400
_MIN_BOXES: Final = 16


def bounded(outline: Outline) -> Outline:
    """Drops the last kernels if there are too many, and merges neighbouring boxes of functions with too many."""
    kept = outline.functions[:MAX_FUNCTIONS]
    limit = max(_MIN_BOXES, MAX_BOXES // max(len(kept), 1))
    return Outline(
        [_bounded(function, limit) for function in kept], outline.omitted + len(outline.functions) - len(kept)
    )


def _bounded(function: FunctionOutline, limit: int) -> FunctionOutline:
    if sum(1 for _ in boxes_of(function.items)) <= limit:
        return function
    step = -(-len(function.items) // limit)
    groups = [function.items[i : i + step] for i in range(0, len(function.items), step)]
    merged_into: dict[int, int] = {}
    items: list[Item] = []
    for group in groups:
        first = next(boxes_of(group)).id
        merged_into.update((box.id, first) for box in boxes_of(group))
        items.append(_merged(first, group))
    edges = [
        replace(
            edge, source=merged_into.get(edge.source, edge.source), target=merged_into.get(edge.target, edge.target)
        )
        for edge in function.edges
    ]
    outer = dict.fromkeys(Edge(e.source, e.target, e.type, e.source > e.target) for e in edges if e.source != e.target)
    return replace(function, items=items, edges=list(outer))


def _merged(id: int, group: Sequence[Item]) -> Box:
    operations: dict[str, int] = {}
    parameters: dict[str, str] = {}
    _count(group, 1, operations, parameters)
    paths = [box.path.split(".") for box in boxes_of(group)]
    common = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))]
    path = ".".join(common if all(parts == common for parts in paths) else [*common, "*"])
    return Box(id, path, None, operations, dict(list(parameters.items())[:_MIN_BOXES]))


def _count(items: Sequence[Item], times: int, operations: dict[str, int], parameters: dict[str, str]) -> None:
    for item in items:
        if isinstance(item, Repeat):
            _count(item.items, times * item.count, operations, parameters)
            continue
        parameters.update(item.parameters)
        for name, count in item.operations.items():
            operations[name] = operations.get(name, 0) + times * count
