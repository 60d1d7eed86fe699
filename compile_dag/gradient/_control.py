"""Gradients of loops and branches."""

from collections.abc import Callable, Sequence
from typing import Final

from compile_dag._evaluate import replay
from compile_dag._graph import ComputeGraph
from compile_dag._node import Value
from compile_dag.gradient._backward import backward
from compile_dag.gradient._rules import Step, Thunk, gradient_of
from compile_dag.gradient._trip_count import static_trip_count
from lang_core import GraphError, Tensor

_NO_COUNT: Final = (
    "how often it runs is not known when recording, and reverse mode has to keep the carried values of every round: "
    "use ctx.ops.fori_loop or another counter that starts, steps and stops at constants, or give the loop's composite "
    "a rule of its own with composite_gradient"
)


@gradient_of("cond")
def _cond(step: Step, *cotangents: Tensor | None) -> Sequence[Thunk]:
    """Records the gradient of the branch that ran, as a branch."""
    pred = step.inputs[0]
    wanted = [value for value, wants in zip(step.values, step.wanted, strict=True) if wants]
    outer = {value.number: tensor for value, tensor in zip(step.values, step.inputs, strict=True)}

    def branch(region: ComputeGraph) -> Callable[[], Sequence[Tensor]]:
        return lambda: _region_gradients(step, region, dict(outer), cotangents, wanted)

    on_true, on_false = step.attributes
    gradients = step.ops.cond(pred, branch(on_true), branch(on_false))
    by_value = {
        value.number: gradient for value, gradient in zip(wanted, gradients, strict=True)
    }  # pred is bool: each once
    return [_known(by_value.get(value.number)) for value in step.values]


def _known(gradient: Tensor | None) -> Thunk:
    return None if gradient is None else lambda: gradient


def _region_gradients(
    step: Step,
    region: ComputeGraph,
    values: dict[int, Tensor],
    cotangents: Sequence[Tensor | None],
    wanted: Sequence[Value],
) -> list[Tensor]:
    """Runs a region forward and backward; zeros where a wanted value has no part in it."""
    replay(region.nodes, step.ctx, values)
    seeds = [(value, g) for value, g in zip(region.outputs.values(), cotangents, strict=True) if g is not None]
    gradients = backward(step.ctx, region.nodes, values, seeds, wanted, step.constants, blocks=False)
    return [
        step.ops.zeros(value.shape, value.dtype) if gradient is None else gradient
        for value, gradient in zip(wanted, gradients, strict=True)
    ]


@gradient_of("while")
def _while(step: Step, *cotangents: Tensor | None) -> Sequence[Thunk]:
    """Runs the loop again, keeping the carried values of each round, and then the rounds backward."""
    trips = static_trip_count(step.attributes, step.values, step.constants)
    if trips is None:
        raise GraphError(f"the gradient of a loop ({step.where}) was asked for, and {_NO_COUNT}")
    loop = _Loop(step, trips)
    return [_known(gradient) for gradient in loop.run_backward(cotangents, loop.run_forward())]


class _Loop:
    """Loop that is differentiated."""

    def __init__(self, step: Step, trips: int) -> None:
        _, self.body, carried = step.attributes
        self.step, self.trips = step, trips
        self.init = step.inputs[:carried]
        self.captured = {v.number: t for v, t in zip(step.values[carried:], step.inputs[carried:], strict=True)}
        self.carried: list[Value] = list(self.body.inputs.values())
        self.floats = [value for value in self.carried if value.dtype.is_floating]
        pairs = zip(step.values[carried:], step.wanted[carried:], strict=True)
        self.wanted = [value for value, wants in pairs if wants]

    def run_forward(self) -> tuple[Tensor, ...]:
        """Returns the carried values at the start of every round: [trips, ..] each."""
        ops, count = self.step.ops, len(self.init)
        buffers = [ops.zeros((self.trips, *value.shape), value.dtype) for value in self.carried]

        def body(i: Tensor, *both: Tensor) -> list[Tensor]:
            now, kept = both[:count], both[count:]
            kept = [
                ops.dynamic_update_slice(buffer, ops.reshape(value, (1, *value.shape)), (i, *[0] * value.ndim))
                for buffer, value in zip(kept, now, strict=True)
            ]
            values = self._at_start(now)
            replay(self.body.nodes, self.step.ctx, values)
            return [*[values[value.number] for value in self.body.outputs.values()], *kept]

        return ops.fori_loop(self.trips, body, (*self.init, *buffers))[count:] if self.trips else ()

    def _at_start(self, now: Sequence[Tensor]) -> dict[int, Tensor]:
        return self.captured | {value.number: tensor for value, tensor in zip(self.carried, now, strict=True)}

    def run_backward(self, cotangents: Sequence[Tensor | None], kept: Sequence[Tensor]) -> list[Tensor | None]:
        """Returns the gradients of the loop's operands."""
        ops, step = self.step.ops, self.step
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
            gradients = _region_gradients(step, self.body, self._at_start(now), inside, [*self.floats, *self.wanted])
            count = len(self.floats)
            return [*gradients[:count], *map(ops.add, both[count:], gradients[count:])]

        last = ops.fori_loop(self.trips, body, (*first, *sums)) if self.trips else (*first, *sums)
        of_value = {value.number: gradient for value, gradient in zip([*self.floats, *self.wanted], last, strict=True)}
        return [of_value.get(value.number) for value in (*self.carried, *step.values[len(self.init) :])]
