"""Gradients of ops that read or write at run-time positions."""

import math
from collections.abc import Sequence

from compile_dag.gradient._rules import Step, Thunk, gradient_of
from lang_core import Ops, Tensor


@gradient_of("dynamic_slice")
def _dynamic_slice(step: Step, g: Tensor) -> Sequence[Thunk]:
    x, *starts = step.inputs
    return (lambda: step.ops.dynamic_update_slice(step.zeros_like(x), g, starts), *[None] * len(starts))


@gradient_of("dynamic_update_slice")
def _dynamic_update_slice(step: Step, g: Tensor) -> Sequence[Thunk]:
    _, update, *starts = step.inputs
    return (
        lambda: step.ops.dynamic_update_slice(g, step.zeros_like(update), starts),
        lambda: step.ops.dynamic_slice(g, starts, update.shape),
        *[None] * len(starts),
    )


def _clamped(ops: Ops, indices: Tensor, size: int) -> Tensor:
    return ops.clamp(indices, 0, max(size - 1, 0))


@gradient_of("gather")
def _gather(step: Step, g: Tensor) -> Sequence[Thunk]:
    (axis,) = step.attributes
    x, indices = step.inputs

    def of_x() -> Tensor:
        (wide,) = step.wide(g)  # many small sums must not be rounded one by one
        places = _clamped(step.ops, indices, x.shape[axis])
        return step.ops.scatter(step.ops.zeros(x.shape, wide.dtype), places, wide, axis, "add")

    return of_x, None


@gradient_of("take")
def _take(step: Step, g: Tensor) -> Sequence[Thunk]:
    """Adds each slice to where it was taken from."""
    (axis,) = step.attributes
    x, indices = step.inputs
    ops = step.ops

    def of_x() -> Tensor:
        (wide,) = step.wide(g)
        count = math.prod(indices.shape)
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        line = ops.reshape(_clamped(ops, indices, x.shape[axis]), (count, *[1] * (x.ndim - axis - 1)))
        places = ops.broadcast(line, shape)
        return ops.scatter(ops.zeros(x.shape, wide.dtype), places, ops.reshape(wide, shape), axis, "add")

    return of_x, None


@gradient_of("scatter")
def _scatter(step: Step, g: Tensor) -> Sequence[Thunk]:
    axis, reduction = step.attributes
    x, indices, _ = step.inputs
    size = x.shape[axis]
    inside = step.ops.logical_and(step.ops.greater_equal(indices, 0), step.ops.less(indices, size))
    of_x, of_updates = _SCATTERS[reduction](step, g)
    if not size:
        return of_x, None, lambda: step.zeros_like(step.inputs[2])
    return of_x, None, lambda: step.ops.select(inside, of_updates(), 0.0)


@gradient_of("put")
def _put_rows(step: Step, g: Tensor) -> Sequence[Thunk]:
    """Reads the updates' gradients where they were put; the indices of a row are distinct, so none hides another."""
    (axis,) = step.attributes
    _, indices, updates, *where = step.inputs
    ops = step.ops
    along = [dim if i in (0, axis) else 1 for i, dim in enumerate(updates.shape)]

    def of_updates() -> Tensor:
        rows = ops.gather(g, ops.broadcast(ops.reshape(indices, along), updates.shape), axis)
        return ops.select(ops.reshape(where[0], along), rows, 0.0) if where else rows

    return lambda: ops.put(g, indices, step.zeros_like(updates), axis, *where), None, of_updates, *[None] * len(where)


def _at(step: Step, x: Tensor) -> Tensor:
    """Returns the elements of x where the updates went."""
    axis = step.attributes[0]
    return step.ops.gather(x, step.inputs[1], axis)


def _put(step: Step, x: Tensor, updates: Tensor, reduction: str) -> Tensor:
    return step.ops.scatter(x, step.inputs[1], updates, step.attributes[0], reduction)


def _scatter_set(step: Step, g: Tensor) -> tuple:
    ops = step.ops
    updates = step.inputs[2]

    def of_updates() -> Tensor:  # of several updates of one element, the one that won
        serial = ops.iota(updates.shape, step.attributes[0], "i32")
        winner = _put(step, ops.full(step.inputs[0].shape, -1, "i32"), serial, "set")
        return ops.select(ops.equal(_at(step, winner), serial), _at(step, g), 0.0)

    return lambda: _put(step, g, step.zeros_like(updates), "set"), of_updates


def _scatter_add(step: Step, g: Tensor) -> tuple:
    return lambda: g, lambda: _at(step, g)


def _scatter_mul(step: Step, g: Tensor) -> tuple:
    """Multiplies each update's gradient by x and the other updates; a zero among them must not divide."""
    ops = step.ops
    wide, x, updates = step.wide(g, step.inputs[0], step.inputs[2])

    def of_updates() -> Tensor:
        zero = ops.equal(updates, 0.0)
        rest = ops.select(zero, 1.0, updates)
        product = _at(step, _put(step, x, rest, "mul"))
        zeros = _at(step, _put(step, step.zeros_like(x), ops.cast(zero, x.dtype), "add"))
        others = ops.sub(zeros, ops.cast(zero, x.dtype))  # zeros among the other updates
        return ops.select(ops.greater(others, 0.0), 0.0, ops.mul(_at(step, wide), ops.div(product, rest)))

    ones = ops.ones(x.shape, x.dtype)
    return lambda: ops.mul(wide, _put(step, ones, updates, "mul")), of_updates


def _scatter_extreme(step: Step, g: Tensor) -> tuple:
    """Shares the gradient evenly among x and the updates that are the extreme one."""
    ops = step.ops
    x, _, updates = step.inputs
    result = step.results[0]
    (wide,) = step.wide(g)
    kept, won = ops.equal(x, result), ops.equal(updates, _at(step, result))
    count = _put(step, ops.cast(kept, wide.dtype), ops.cast(won, wide.dtype), "add")
    share = ops.div(wide, ops.maximum(count, 1.0))
    return lambda: ops.select(kept, share, 0.0), lambda: ops.select(won, _at(step, share), 0.0)


_SCATTERS = {
    "set": _scatter_set,
    "add": _scatter_add,
    "mul": _scatter_mul,
    "max": _scatter_extreme,
    "min": _scatter_extreme,
}
