"""Gradients of loops and branches."""

from collections.abc import Callable, Sequence
from typing import Final

from compile_dag._evaluate import replay
from compile_dag._graph import ComputeGraph
from compile_dag._node import Value
from compile_dag.gradient._backward import backward
from compile_dag.gradient._rules import ForwardCall, Thunk, gradient_of
from compile_dag.gradient._trip_count import static_trip_count
from lang_core import GraphError, Tensor

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
