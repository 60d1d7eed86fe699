"""Rules of ops that read or write at run-time positions: clamped as the op table says, never counted from the end."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lang_core import as_dtype
from run_jax._rules import Array, computes, convert


def _clamped(indices: Array, most: int) -> Array:
    """Returns indices in 0 .. most, as i32 if they fit."""
    low, high = (np.array(bound, indices.dtype) for bound in (0, max(most, 0)))
    return lax.clamp(low, indices, high)


def _starts(starts: tuple[Array, ...], shape: tuple[int, ...], sizes: tuple[int, ...]) -> list[Array]:
    return [_clamped(start, dim - size) for start, dim, size in zip(starts, shape, sizes, strict=True)]


@computes("dynamic_slice")
def _dynamic_slice(x: Array, *starts_and_sizes: Any) -> Array:
    *starts, sizes = starts_and_sizes
    return lax.dynamic_slice(x, _starts(tuple(starts), x.shape, sizes), sizes)


@computes("dynamic_update_slice")
def _dynamic_update_slice(x: Array, update: Array, *starts: Array) -> Array:
    return lax.dynamic_update_slice(x, update, _starts(starts, x.shape, update.shape))


def overlapping_update(x: Array, update: Array, *starts: Array) -> Array:
    """Updates a slice if the update may be computed from x: XLA writes in place, and reads overwritten elements.

    It takes x and a reshape of it for different buffers (openxla/xla#49176, jaxlib 0.10.2), and has removed barriers
    by then. Here both are written into constants, and the result is chosen.
    """
    where = _starts(starts, x.shape, update.shape)
    chosen = lax.dynamic_update_slice(jnp.zeros(x.shape, bool), jnp.ones(update.shape, bool), where)
    return jnp.where(chosen, lax.dynamic_update_slice(jnp.zeros_like(x), update, where), x)


@computes("take")
def _take(x: Array, indices: Array, axis: int) -> Array:
    if not indices.size or not x.size:
        return jnp.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
    return jnp.take(x, _clamped(indices, x.shape[axis] - 1), axis, mode="clip")


@computes("gather")
def _gather(x: Array, indices: Array, axis: int) -> Array:
    if not indices.size:
        return jnp.zeros(indices.shape, x.dtype)
    return jnp.take_along_axis(x, _clamped(indices, x.shape[axis] - 1), axis, mode="promise_in_bounds")


def _or_outside(indices: Array, size: int, inside: Array) -> Array:
    """Returns the indices that are inside, and for the others one that ``mode="drop"`` drops."""
    return jnp.where(inside, indices, np.array(size, indices.dtype))


@computes("scatter")
def _scatter(x: Array, indices: Array, updates: Array, axis: int, reduction: str) -> Array:
    if not indices.size or not x.size:
        return x
    size = x.shape[axis]
    inside = (indices >= np.array(0, indices.dtype)) & (indices < np.array(size, indices.dtype))
    places: list[Any] = [lax.broadcasted_iota(indices.dtype, indices.shape, i) for i in range(x.ndim)]
    places[axis] = _or_outside(indices, size, inside)
    dtype = as_dtype(x.dtype)
    method = {"add": "add", "mul": "multiply", "max": "max", "min": "min", "set": "set"}[reduction]
    if reduction in ("add", "mul"):
        x, updates = convert(x, dtype.accumulation), convert(updates, dtype.accumulation)
    if reduction == "mul" and dtype.is_floating:
        return convert(_multiplied(x, updates, tuple(places)), dtype)
    return convert(getattr(x.at[tuple(places)], method)(updates, mode="drop"), dtype)


@jax.custom_jvp
def _multiplied(x: Array, updates: Array, places: tuple[Array, ...]) -> Array:
    """Returns x with the updates multiplied in; JAX itself differentiates this for distinct places alone."""
    return x.at[places].multiply(updates, mode="drop")


@_multiplied.defjvp
def _multiplied_tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """Returns the product and its tangent: an update's factor is x times the product of its place's other updates."""
    (x, updates, places), (d_x, d_updates, _) = primals, tangents
    one, zero = jnp.ones_like(x), jnp.zeros_like(x)
    is_zero = updates == 0
    product = one.at[places].multiply(updates, mode="drop")
    zeros = zero.at[places].add(is_zero.astype(x.dtype), mode="drop")
    nonzero = one.at[places].multiply(jnp.where(is_zero, jnp.ones_like(updates), updates), mode="drop")

    def at_places(whole: Array) -> Array:
        return whole.at[places].get(mode="fill", fill_value=0)

    count, rest = at_places(zeros), at_places(nonzero)
    without = jnp.where(is_zero, rest, rest / jnp.where(is_zero, jnp.ones_like(updates), updates))
    others = jnp.where(count == is_zero.astype(x.dtype), without, jnp.zeros_like(updates))
    tangent = (d_x * product).at[places].add(d_updates * at_places(x) * others, mode="drop")
    return _multiplied(x, updates, places), tangent


@computes("put")
def _put(x: Array, indices: Array, updates: Array, *where_and_axis: Any) -> Array:
    *where, axis = where_and_axis
    if not indices.size or not x.size:
        return x
    rows = lax.broadcasted_iota(indices.dtype, indices.shape, 0)
    places = _clamped(indices, x.shape[axis] - 1)
    if where:
        places = _or_outside(places, x.shape[axis], where[0])
    moved = jnp.moveaxis(x, axis, 1).at[rows, places].set(jnp.moveaxis(updates, axis, 1), mode="drop")
    return jnp.moveaxis(moved, 1, axis)
