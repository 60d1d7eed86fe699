"""Trip counts of loops, if they are known when the loop is recorded."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from compile_dag._evaluate import evaluate
from compile_dag._graph import ComputeGraph, regions_of
from compile_dag._node import Node, Value
from lang_core import EagerExecutionContext, Tensor

# Beyond this a loop is taken to be one whose rounds cannot be kept anyway.
_MOST: Final = 1 << 16


def static_trip_count(attributes: tuple[Any, ...], operands: Sequence[Value], constants: dict[int, Any]) -> int | None:
    """Counts the rounds of a loop by running its condition, if that depends on constants only.

    Args:
        attributes: attributes of the ``while``: its condition, its body and the number of carried values.
        operands: first carried values, then captured values.
        constants: arrays of constants by the number of the value.

    Returns:
        The number of rounds; None if it depends on data, or the loop never ends.
    """
    cond, body, _ = attributes
    counters = _closure(cond, body)
    if any(operands[i].number not in constants for i in counters):
        return None
    condition = _only(cond, cond.outputs, constants)
    after = _only(
        body, {name: value for i, (name, value) in enumerate(body.outputs.items()) if i in counters}, constants
    )
    if condition is None or after is None:
        return None
    ctx = EagerExecutionContext()
    state: dict[int, Tensor] = {i: ctx.constant(constants[operands[i].number]) for i in counters}
    for trip in range(_MOST):
        if not _run(condition, cond, ctx, state)[0].numpy():
            return trip
        before, state = state, dict(zip(counters, _run(after, body, ctx, state), strict=True))
        if all(np.array_equal(before[i].numpy(), state[i].numpy()) for i in counters):
            return None
    return None


def _closure(cond: ComputeGraph, body: ComputeGraph) -> list[int]:
    """Returns the indices of the carried values on which the condition depends, at first or by way of other rounds."""
    needed = _inputs_of(cond, list(cond.outputs.values()))
    while True:
        results = [value for i, value in enumerate(body.outputs.values()) if i in needed]
        more = needed | _inputs_of(body, results)
        if more == needed:
            return sorted(needed)
        needed = more


def _needed(region: ComputeGraph, results: Sequence[Value]) -> tuple[set[int], list[Node]]:
    """Returns the numbers of the values that results depend on, and the nodes that make them, in order."""
    live = {value.number for value in results}
    nodes: list[Node] = []
    for node in reversed(region.nodes):
        if any(value.number in live for value in node.results):
            live.update(value.number for value in node.inputs)
            nodes.append(node)
    return live, nodes[::-1]


def _inputs_of(region: ComputeGraph, results: Sequence[Value]) -> set[int]:
    live, _ = _needed(region, results)
    return {i for i, value in enumerate(region.inputs.values()) if value.number in live}


def _only(region: ComputeGraph, outputs: dict[str, Value], constants: dict[int, Any]) -> "_Part | None":
    """Returns the part of a region that makes the outputs; None if it needs a parameter or data from around."""
    live, nodes = _needed(region, list(outputs.values()))
    captured = [value for value in region.captures if value.number in live]
    if any(node.op.name == "parameter" or any(True for _ in regions_of(node)) for node in nodes):
        return None
    if any(value.number not in constants for value in captured):
        return None
    inputs = {name: value for name, value in region.inputs.items() if value.number in live}
    names = {f"captured_{i}": value for i, value in enumerate(captured)}
    graph = ComputeGraph(region.name, inputs | names, tuple(nodes), outputs)
    return _Part(graph, {name: constants[value.number] for name, value in names.items()})


class _Part:
    """Part of a region, with the constants that it captures."""

    def __init__(self, graph: ComputeGraph, captured: dict[str, Any]) -> None:
        self.graph, self.captured = graph, captured


def _run(part: _Part, region: ComputeGraph, ctx: EagerExecutionContext, state: dict[int, Tensor]) -> list[Tensor]:
    inputs = {name: ctx.constant(array) for name, array in part.captured.items()}
    inputs |= {name: state[i] for i, name in enumerate(region.inputs) if name in part.graph.inputs}
    return list(evaluate(part.graph, ctx, inputs).values())
