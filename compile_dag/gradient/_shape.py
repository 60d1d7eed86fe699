"""Gradients of ops that move elements."""

from collections.abc import Sequence

from compile_dag.gradient._rules import ForwardCall, Thunk, gradient_of, not_differentiable
from lang_core import Tensor

not_differentiable("it has no operands", "iota", "constant")


@gradient_of("broadcast")
def _broadcast(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    return (lambda: g,)  # summed over what was broadcast, as every gradient is


@gradient_of("reshape")
def _reshape(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    return (lambda: forward.ops.reshape(g, forward.inputs[0].shape),)


@gradient_of("transpose")
def _transpose(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    (axes,) = forward.attributes
    return (lambda: forward.ops.transpose(g, tuple(axes.index(axis) for axis in range(len(axes)))),)


@gradient_of("concat")
def _concat(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    (axis,) = forward.attributes
    thunks: list[Thunk] = []
    begin = 0
    for operand in forward.inputs:
        end = begin + operand.shape[axis]
        thunks.append(lambda begin=begin, end=end: forward.ops.slice_axis(g, axis, begin, end))
        begin = end
    return thunks


@gradient_of("slice")
def _slice(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    start, _, stride = forward.attributes
    shape = forward.inputs[0].shape

    def of_x() -> Tensor:
        covered = [low + max(n - 1, 0) * s + min(n, 1) for low, n, s in zip(start, g.shape, stride, strict=True)]
        high = [dim - end for dim, end in zip(shape, covered, strict=True)]
        return forward.ops.pad(g, start, high, interior=[s - 1 for s in stride])

    return (of_x,)


@gradient_of("pad")
def _pad(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    ops = forward.ops
    low, high, interior = forward.attributes
    x = forward.inputs[0]

    def of_x() -> Tensor:
        stop = [a + (n - 1) * (i + 1) + 1 if n else a for a, n, i in zip(low, x.shape, interior, strict=True)]
        return ops.slice(g, low, stop, [i + 1 for i in interior])

    def of_value() -> Tensor:
        inside = ops.zeros(x.shape, "bool")
        outside = ops.pad(inside, low, high, ops.constant(True), interior)
        return ops.sum(ops.select(outside, g, 0.0))

    return of_x, of_value


@gradient_of("reverse")
def _reverse(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    return (lambda: forward.ops.reverse(g, forward.attributes[0]),)
