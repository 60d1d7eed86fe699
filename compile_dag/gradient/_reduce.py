"""Gradients of reductions, running sums and order."""

import math
from collections.abc import Sequence

from compile_dag.gradient._rules import ForwardCall, Thunk, gradient_of, not_differentiable
from lang_core import Ops, Tensor

not_differentiable("it is of bool", "any", "all")
not_differentiable("it gives a position", "argmax", "argmin")


def _kept(forward: ForwardCall, reduced: Tensor) -> Tensor:
    """Reshapes a reduction's result, or its cotangent, to have the reduced axes as 1."""
    axes, keepdims = forward.attributes
    if keepdims:
        return reduced
    shape = [1 if axis in axes else dim for axis, dim in enumerate(forward.inputs[0].shape)]
    return forward.ops.reshape(reduced, shape)


@gradient_of("sum")
def _sum(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    return (lambda: forward.ops.broadcast(_kept(forward, g), forward.inputs[0].shape),)


@gradient_of("max", "min")
def _extreme(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """Shares the gradient evenly among all elements that are the extreme one; of NaN among all that are NaN."""
    ops = forward.ops
    (x,) = forward.inputs

    def of_x() -> Tensor:
        (wide,) = forward.wide(_kept(forward, g))
        hit = ops.logical_or(ops.equal(x, _kept(forward, forward.results[0])), ops.not_equal(x, x))
        count = ops.sum(ops.cast(hit, wide.dtype), forward.attributes[0], keepdims=True)
        return ops.select(hit, ops.div(wide, count), 0.0)

    return (of_x,)


@gradient_of("prod")
def _prod(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """Multiplies by the product of all other elements, without dividing by elements that may be 0."""
    ops = forward.ops
    axes = forward.attributes[0]

    def of_x() -> Tensor:
        wide, x = forward.wide(_kept(forward, g), forward.inputs[0])
        if not x.spec.size or not axes:
            return ops.broadcast(wide, x.shape)
        free = [axis for axis in range(x.ndim) if axis not in axes]
        order = (*free, *axes)
        lined = ops.transpose(x, order)
        flat = ops.reshape(lined, (*[x.shape[axis] for axis in free], -1))
        others = ops.mul(_before(ops, flat), ops.reverse(_before(ops, ops.reverse(flat, (-1,))), (-1,)))
        if flat.shape[-1] > 2:
            others = ops.select(_vanishes(ops, flat), 0.0, others)
        back = ops.transpose(ops.reshape(others, lined.shape), [order.index(axis) for axis in range(x.ndim)])
        return ops.mul(wide, back)

    return (of_x,)


def _vanishes(ops: Ops, x: Tensor) -> Tensor:
    """Returns where the product of the others is 0, whatever overflows on the way: one is 0, and all are finite."""
    zero = ops.equal(x, 0.0)
    count = ops.sum(ops.cast(zero, "i32"), -1, keepdims=True)
    others = ops.sub(count, ops.cast(zero, "i32"))
    finite = ops.less(ops.max(ops.abs(x), -1, keepdims=True), math.inf)
    return ops.logical_and(ops.greater(others, 0), finite)


def _before(ops: Ops, x: Tensor) -> Tensor:
    """Returns the product of the elements before each one along the last axis, in about log2(n) steps."""
    size = x.shape[-1]
    product = _shifted(ops, x, 1)
    reach = 1
    while reach < size - 1:
        product = ops.mul(product, _shifted(ops, product, reach))
        reach *= 2
    return product


def _shifted(ops: Ops, x: Tensor, by: int) -> Tensor:
    """Moves x up along the last axis; ones come in."""
    zero = [0] * (x.ndim - 1)
    return ops.pad(ops.slice_axis(x, -1, 0, x.shape[-1] - by), [*zero, by], [*zero, 0], 1.0)


@gradient_of("cumsum")
def _cumsum(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    (axis,) = forward.attributes
    ops = forward.ops
    return (lambda: ops.reverse(ops.cumsum(ops.reverse(g, (axis,)), axis), (axis,)),)


@gradient_of("sort")
def _sort(forward: ForwardCall, g: Tensor | None, _: Tensor | None) -> Sequence[Thunk]:
    """Scatters the gradient to where each element came from; a permutation, so nothing is written twice."""
    axis, _descending = forward.attributes
    if g is None:
        return (None,)
    return (lambda: forward.ops.scatter(forward.zeros_like(forward.inputs[0]), forward.results[1], g, axis),)
