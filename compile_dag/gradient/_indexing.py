"""Gradients of ops that read or write at run-time positions."""

import math
from collections.abc import Sequence

from compile_dag.gradient._rules import ForwardCall, Thunk, gradient_of
from lang_core import Ops, Tensor


@gradient_of("dynamic_slice")
def _dynamic_slice(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    x, *starts = forward.inputs
    return (lambda: forward.ops.dynamic_update_slice(forward.zeros_like(x), g, starts), *[None] * len(starts))


@gradient_of("dynamic_update_slice")
def _dynamic_update_slice(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    _, update, *starts = forward.inputs
    return (
        lambda: forward.ops.dynamic_update_slice(g, forward.zeros_like(update), starts),
        lambda: forward.ops.dynamic_slice(g, starts, update.shape),
        *[None] * len(starts),
    )


def _clamped(ops: Ops, indices: Tensor, size: int) -> Tensor:
    return ops.clamp(indices, 0, max(size - 1, 0))


@gradient_of("gather")
def _gather(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    (axis,) = forward.attributes
    x, indices = forward.inputs

    def of_x() -> Tensor:
        (wide,) = forward.wide(g)  # many small sums must not be rounded one by one
        places = _clamped(forward.ops, indices, x.shape[axis])
        return forward.ops.scatter(forward.ops.zeros(x.shape, wide.dtype), places, wide, axis, "add")

    return of_x, None


@gradient_of("take")
def _take(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """Adds each slice to where it was taken from."""
    (axis,) = forward.attributes
    x, indices = forward.inputs
    ops = forward.ops

    def of_x() -> Tensor:
        (wide,) = forward.wide(g)
        count = math.prod(indices.shape)
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        line = ops.reshape(_clamped(ops, indices, x.shape[axis]), (count, *[1] * (x.ndim - axis - 1)))
        places = ops.broadcast(line, shape)
        return ops.scatter(ops.zeros(x.shape, wide.dtype), places, ops.reshape(wide, shape), axis, "add")

    return of_x, None


@gradient_of("scatter")
def _scatter(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    axis, reduction = forward.attributes
    x, indices, _ = forward.inputs
    size = x.shape[axis]
    inside = forward.ops.logical_and(forward.ops.greater_equal(indices, 0), forward.ops.less(indices, size))
    of_x, of_updates = _SCATTERS[reduction](forward, g)
    if not size:
        return of_x, None, lambda: forward.zeros_like(forward.inputs[2])
    return of_x, None, lambda: forward.ops.select(inside, of_updates(), 0.0)


@gradient_of("put")
def _put_rows(forward: ForwardCall, g: Tensor) -> Sequence[Thunk]:
    """Reads the updates' gradients where they were put; the indices of a row are distinct, so none hides another."""
    (axis,) = forward.attributes
    _, indices, updates, *where = forward.inputs
    ops = forward.ops
    along = [dim if i in (0, axis) else 1 for i, dim in enumerate(updates.shape)]

    def of_updates() -> Tensor:
        rows = ops.gather(g, ops.broadcast(ops.reshape(indices, along), updates.shape), axis)
        return ops.select(ops.reshape(where[0], along), rows, 0.0) if where else rows

    return (
        lambda: ops.put(g, indices, forward.zeros_like(updates), axis, *where),
        None,
        of_updates,
        *[None] * len(where),
    )


def _at(forward: ForwardCall, x: Tensor) -> Tensor:
    """Returns the elements of x where the updates went."""
    axis = forward.attributes[0]
    return forward.ops.gather(x, forward.inputs[1], axis)


def _put(forward: ForwardCall, x: Tensor, updates: Tensor, reduction: str) -> Tensor:
    return forward.ops.scatter(x, forward.inputs[1], updates, forward.attributes[0], reduction)


def _scatter_set(forward: ForwardCall, g: Tensor) -> tuple:
    ops = forward.ops
    updates = forward.inputs[2]

    def of_updates() -> Tensor:  # of several updates of one element, the one that won
        serial = ops.iota(updates.shape, forward.attributes[0], "i32")
        winner = _put(forward, ops.full(forward.inputs[0].shape, -1, "i32"), serial, "set")
        return ops.select(ops.equal(_at(forward, winner), serial), _at(forward, g), 0.0)

    return lambda: _put(forward, g, forward.zeros_like(updates), "set"), of_updates


def _scatter_add(forward: ForwardCall, g: Tensor) -> tuple:
    return lambda: g, lambda: _at(forward, g)


def _scatter_mul(forward: ForwardCall, g: Tensor) -> tuple:
    """Multiplies each update's gradient by x and the other updates; a zero among them must not divide."""
    ops = forward.ops
    wide, x, updates = forward.wide(g, forward.inputs[0], forward.inputs[2])

    def of_updates() -> Tensor:
        zero = ops.equal(updates, 0.0)
        rest = ops.select(zero, 1.0, updates)
        product = _at(forward, _put(forward, x, rest, "mul"))
        zeros = _at(forward, _put(forward, forward.zeros_like(x), ops.cast(zero, x.dtype), "add"))
        others = ops.sub(zeros, ops.cast(zero, x.dtype))  # zeros among the other updates
        return ops.select(ops.greater(others, 0.0), 0.0, ops.mul(_at(forward, wide), ops.div(product, rest)))

    ones = ops.ones(x.shape, x.dtype)
    return lambda: ops.mul(wide, _put(forward, ones, updates, "mul")), of_updates


def _scatter_extreme(forward: ForwardCall, g: Tensor) -> tuple:
    """Shares the gradient evenly among x and the updates that are the extreme one."""
    ops = forward.ops
    x, _, updates = forward.inputs
    result = forward.results[0]
    (wide,) = forward.wide(g)
    kept, won = ops.equal(x, result), ops.equal(updates, _at(forward, result))
    count = _put(forward, ops.cast(kept, wide.dtype), ops.cast(won, wide.dtype), "add")
    share = ops.div(wide, ops.maximum(count, 1.0))
    return lambda: ops.select(kept, share, 0.0), lambda: ops.select(won, _at(forward, share), 0.0)


_SCATTERS = {
    "set": _scatter_set,
    "add": _scatter_add,
    "mul": _scatter_mul,
    "max": _scatter_extreme,
    "min": _scatter_extreme,
}
