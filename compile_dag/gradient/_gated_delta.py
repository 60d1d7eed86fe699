"""Gradient of the gated delta rule over several chunks."""

from collections.abc import Sequence
from typing import Any

from compile_dag._context import GraphExecutionContext
from compile_dag._evaluate import replay
from compile_dag.gradient._backward import backward
from compile_dag.gradient._rules import ForwardCall, Thunk, composite_gradient
from lang_core import ExecutionContext, Ops, Tensor, TensorSpec


@composite_gradient("gated_delta_rule")
def _gated_delta_rule(forward: ForwardCall, of_o: Tensor | None, of_last: Tensor | None) -> Sequence[Thunk]:
    """Runs the chunks again for the states before them, then from the last one back, each by the gradients of its ops.

    The states between chunks are kept. (The loop of the forward pass carries all results too, and the gradient of any
    loop keeps the carried values of each round: memory would grow with the square of T.)
    """
    ctx, ops = forward.ctx, forward.ops
    q, k, v, *_, state = forward.inputs
    scale, size = forward.attributes
    wide = q.dtype.accumulation
    present = [index for index in range(5) if forward.inputs[index] is not None]
    wanted = [index for index in present if forward.wanted[index]]
    chunks = [_in_chunks(ops, ops.cast(forward.inputs[index], wide), size) for index in present]
    of_results = _in_chunks(ops, ops.cast(forward.zeros_like(forward.results[0]) if of_o is None else of_o, wide), size)
    shape = (k.shape[0], k.shape[2], k.shape[3], v.shape[3])
    first = ops.zeros(shape, wide) if state is None else ops.cast(state, wide)
    last = ops.zeros(shape, wide) if of_last is None else ops.cast(of_last, wide)
    chunk = _Chunk([TensorSpec(x.shape[1:], wide) for x in chunks], present, first.spec, scale)
    count = chunks[0].shape[0]

    def advance(i: Tensor, before: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        values = chunk.run(ctx, [_at(ops, x, i) for x in chunks], before)
        return values[chunk.after.number], _put(ops, starts, before, i)

    _, starts = ops.fori_loop(count, advance, (first, ops.zeros((count, *shape), wide)))

    def back(i: Tensor, of_after: Tensor, *buffers: Tensor) -> list[Tensor]:
        i = ops.sub(count - 1, i)
        values = chunk.run(ctx, [_at(ops, x, i) for x in chunks], _at(ops, starts, i))
        of_before, *slopes = chunk.gradients(ctx, values, _at(ops, of_results, i), of_after, wanted)
        return [of_before, *(_put(ops, buffer, part, i) for buffer, part in zip(buffers, slopes, strict=True))]

    buffers = [ops.zeros(chunks[present.index(index)].shape, wide) for index in wanted]
    of_first, *buffers = ops.fori_loop(count, back, (last, *buffers))
    by_index = {index: _whole(ops, x, q.shape[1]) for index, x in zip(wanted, buffers, strict=True)} | {5: of_first}
    return [(lambda gradient=by_index[index]: gradient) if index in by_index else None for index in range(6)]


class _Chunk:
    """One chunk as ops, to be run and differentiated in each round.

    Args:
        specs: specs of the operands that are present.
        present: indices of these among q, k, v, g and beta.
        state: spec of the state.
        scale: scale of the composite.

    Attributes:
        after: recorded state after the chunk.
    """

    def __init__(self, specs: Sequence[TensorSpec], present: Sequence[int], state: TensorSpec, scale: float) -> None:
        side = GraphExecutionContext()
        with side.recording() as tape:
            self.inputs: dict[int, Any] = {
                i: side.placeholder(f"x{i}", spec) for i, spec in zip(present, specs, strict=True)
            }
            self.before: Any = side.placeholder("before", state)
            operands: Any = [self.inputs.get(i) for i in range(5)]
            q, k, v, g, beta = operands
            made: Any = side.ops.gated_delta_rule(q, k, v, g, beta, self.before, scale, specs[0].shape[1])
            self.o, self.after = made
        self.nodes = tape.nodes

    def run(self, ctx: ExecutionContext, parts: Sequence[Tensor], before: Tensor) -> dict[int, Tensor]:
        """Returns the tensors of ``ctx`` for the recorded values, by number."""
        values = {value.number: part for value, part in zip(self.inputs.values(), parts, strict=True)}
        values[self.before.number] = before
        replay(self.nodes, ctx, values)
        return values

    def gradients(
        self, ctx: ExecutionContext, values: dict[int, Tensor], of_o: Tensor, of_after: Tensor, wanted: Sequence[int]
    ) -> list[Tensor]:
        """Returns the gradients of the state before the chunk and of the wanted operands."""
        sought = [self.before, *(self.inputs[index] for index in wanted)]
        seeds = [(self.o, of_o), (self.after, of_after)]
        slopes = backward(ctx, self.nodes, values, seeds, sought, {}, blocks=False)
        return [
            ctx.ops.zeros(value.shape, value.dtype) if gradient is None else gradient
            for value, gradient in zip(sought, slopes, strict=True)
        ]


def _in_chunks(ops: Ops, x: Tensor, size: int) -> Tensor:
    """Cuts [B, T, ..] into [T / C, B, C, ..], padded with zeros."""
    batch, tokens, *rest = x.shape
    count = -(-tokens // size)
    if count * size > tokens:
        x = ops.pad(x, (0,) * x.ndim, (0, count * size - tokens, *[0] * len(rest)))
    x = ops.reshape(x, (batch, count, size, *rest))
    return ops.transpose(x, (1, 0, *range(2, x.ndim)))


def _whole(ops: Ops, x: Tensor, tokens: int) -> Tensor:
    """Joins the chunks that ``_in_chunks`` cuts."""
    count, batch, size, *rest = x.shape
    x = ops.reshape(ops.transpose(x, (1, 0, *range(2, x.ndim))), (batch, count * size, *rest))
    return ops.slice_axis(x, 1, 0, tokens)


def _at(ops: Ops, x: Tensor, i: Tensor) -> Tensor:
    """Returns x[i]."""
    return ops.reshape(ops.dynamic_slice(x, (i, *[0] * (x.ndim - 1)), (1, *x.shape[1:])), x.shape[1:])


def _put(ops: Ops, x: Tensor, part: Tensor, i: Tensor) -> Tensor:
    """Returns x with x[i] replaced."""
    return ops.dynamic_update_slice(x, ops.reshape(part, (1, *part.shape)), (i, *[0] * (x.ndim - 1)))
