"""Gradients of loops and branches, and trip counts of loops."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from compile_dag._evaluate import evaluate, replay
from compile_dag._graph import ComputeGraph, regions_of
from compile_dag._node import Node, Value
from compile_dag.gradient._backward import backward
from compile_dag.gradient._rules import ForwardCall, Thunk, gradient_of
from lang_core import EagerExecutionContext, GraphError, Tensor

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


_NO_COUNT: Final = (
    "how often it runs is not known when recording, and reverse mode has to keep the carried values of every round: "
    "use ctx.ops.fori_loop or another counter that starts, steps and stops at constants, or give the loop's composite "
    "a rule of its own with composite_gradient"
)


@gradient_of("cond")
def _cond(forward: ForwardCall, *cotangents: Tensor | None) -> Sequence[Thunk]:
    """Records the gradient of the branch that ran, as a branch."""
    pred = forward.inputs[0]
    wanted = [value for value, wants in zip(forward.values, forward.wanted, strict=True) if wants]
    outer = {value.number: tensor for value, tensor in zip(forward.values, forward.inputs, strict=True)}

    def branch(region: ComputeGraph) -> Callable[[], Sequence[Tensor]]:
        return lambda: _region_gradients(forward, region, dict(outer), cotangents, wanted)

    on_true, on_false = forward.attributes
    gradients = forward.ops.cond(pred, branch(on_true), branch(on_false))
    by_value = {
        value.number: gradient for value, gradient in zip(wanted, gradients, strict=True)
    }  # pred is bool: each once
    return [_known(by_value.get(value.number)) for value in forward.values]


def _known(gradient: Tensor | None) -> Thunk:
    return None if gradient is None else lambda: gradient


def _region_gradients(
    forward: ForwardCall,
    region: ComputeGraph,
    values: dict[int, Tensor],
    cotangents: Sequence[Tensor | None],
    wanted: Sequence[Value],
) -> list[Tensor]:
    """Runs a region forward and backward; zeros if it does not use a wanted value."""
    replay(region.nodes, forward.ctx, values)
    seeds = [(value, g) for value, g in zip(region.outputs.values(), cotangents, strict=True) if g is not None]
    gradients = backward(forward.ctx, region.nodes, values, seeds, wanted, forward.constants, blocks=False)
    return [
        forward.ops.zeros(value.shape, value.dtype) if gradient is None else gradient
        for value, gradient in zip(wanted, gradients, strict=True)
    ]


@gradient_of("while")
def _while(forward: ForwardCall, *cotangents: Tensor | None) -> Sequence[Thunk]:
    """Runs the loop again, keeping the carried values of each round, and then the rounds backward."""
    trips = static_trip_count(forward.attributes, forward.values, forward.constants)
    if trips is None:
        raise GraphError(f"the gradient of a loop ({forward.where}) was asked for, and {_NO_COUNT}")
    loop = _Loop(forward, trips)
    return [_known(gradient) for gradient in loop.run_backward(cotangents, loop.run_forward())]


class _Loop:
    """Loop that is differentiated."""

    def __init__(self, forward: ForwardCall, trips: int) -> None:
        _, self.body, carried = forward.attributes
        self.forward, self.trips = forward, trips
        self.init = forward.inputs[:carried]
        self.captured = {v.number: t for v, t in zip(forward.values[carried:], forward.inputs[carried:], strict=True)}
        self.carried: list[Value] = list(self.body.inputs.values())
        self.floats = [value for value in self.carried if value.dtype.is_floating]
        pairs = zip(forward.values[carried:], forward.wanted[carried:], strict=True)
        self.wanted = [value for value, wants in pairs if wants]

    def run_forward(self) -> tuple[Tensor, ...]:
        """Returns the carried values at the start of every round: [trips, ..] each."""
        ops, count = self.forward.ops, len(self.init)
        buffers = [ops.zeros((self.trips, *value.shape), value.dtype) for value in self.carried]

        def body(i: Tensor, *both: Tensor) -> list[Tensor]:
            now, kept = both[:count], both[count:]
            kept = [
                ops.dynamic_update_slice(buffer, ops.reshape(value, (1, *value.shape)), (i, *[0] * value.ndim))
                for buffer, value in zip(kept, now, strict=True)
            ]
            values = self._at_start(now)
            replay(self.body.nodes, self.forward.ctx, values)
            return [*[values[value.number] for value in self.body.outputs.values()], *kept]

        return ops.fori_loop(self.trips, body, (*self.init, *buffers))[count:] if self.trips else ()

    def _at_start(self, now: Sequence[Tensor]) -> dict[int, Tensor]:
        return self.captured | {value.number: tensor for value, tensor in zip(self.carried, now, strict=True)}

    def run_backward(self, cotangents: Sequence[Tensor | None], kept: Sequence[Tensor]) -> list[Tensor | None]:
        """Returns the gradients of the loop's operands."""
        ops, forward = self.forward.ops, self.forward
        given = {value.number: g for value, g in zip(self.carried, cotangents, strict=True) if g is not None}
        first = [given[v.number] if v.number in given else ops.zeros(v.shape, v.dtype) for v in self.floats]
        sums = [ops.zeros(value.shape, value.dtype) for value in self.wanted]

        def body(i: Tensor, *both: Tensor) -> list[Tensor]:
            j = ops.sub(self.trips - 1, i)
            now = [
                ops.reshape(ops.dynamic_slice(buffer, (j, *[0] * value.ndim), (1, *value.shape)), value.shape)
                for buffer, value in zip(kept, self.carried, strict=True)
            ]
            later = {value.number: g for value, g in zip(self.floats, both, strict=False)}
            inside = [later.get(value.number) for value in self.carried]
            gradients = _region_gradients(forward, self.body, self._at_start(now), inside, [*self.floats, *self.wanted])
            count = len(self.floats)
            return [*gradients[:count], *map(ops.add, both[count:], gradients[count:])]

        last = ops.fori_loop(self.trips, body, (*first, *sums)) if self.trips else (*first, *sums)
        of_value = {value.number: gradient for value, gradient in zip([*self.floats, *self.wanted], last, strict=True)}
        return [of_value.get(value.number) for value in (*self.carried, *forward.values[len(self.init) :])]
