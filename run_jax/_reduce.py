"""Rules of reductions, running sums and order."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lang_core import DType, as_dtype
from run_jax._elementwise import with_zero
from run_jax._rules import RULES, Array, Rule, computes, convert

_INDEX = np.dtype(np.int32)


def _accumulating(function: Callable[..., Array]) -> Rule:
    """Sums f16 and bf16 in f32 and rounds once; integers wrap in their own dtype."""

    def rule(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        dtype = as_dtype(x.dtype)
        wide = convert(x, dtype.accumulation)
        return convert(function(wide, axis=axes, keepdims=keepdims, dtype=wide.dtype), dtype)

    return rule


def _choosing(function: Callable[..., Array]) -> Rule:
    return lambda x, axes, keepdims: function(x, axis=axes, keepdims=keepdims)


def _extreme(function: Callable[..., Array], position: Callable[..., Array]) -> Rule:
    """Returns the rule of max or min; the gradient is shared among the elements that are equal to the result.

    NaN is the result if there is one.

    Args:
        function: reduction.
        position: function that gives the index of one such element: XLA may compute x twice with different roundings,
            and then none is equal to the result.
    """

    @jax.custom_jvp
    def kept(x: Array) -> Array:
        return function(x, axis=-1, keepdims=True)

    @kept.defjvp
    def _tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
        (x,) = primals
        result = kept(x)
        first = lax.expand_dims(position(x, x.ndim - 1, _INDEX), (-1,))
        chosen = (x == result) | (x != x) | (lax.broadcasted_iota(_INDEX, x.shape, x.ndim - 1) == first)
        shares = chosen.astype(x.dtype) / jnp.sum(chosen, axis=-1, keepdims=True, dtype=x.dtype)
        return result, jnp.sum(shares * tangents[0], axis=-1, keepdims=True)

    def rule(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        shape = [1 if axis in axes else dim for axis, dim in enumerate(x.shape)]
        if not as_dtype(x.dtype).is_floating:
            return function(x, axis=axes, keepdims=keepdims)
        others = [axis for axis in range(x.ndim) if axis not in axes]
        rows = lax.transpose(x, (*others, *axes))
        size = math.prod(x.shape[axis] for axis in axes)
        result = kept(lax.reshape(rows, (*(x.shape[axis] for axis in others), size)))
        return lax.reshape(result, shape if keepdims else [x.shape[axis] for axis in others])

    return rule


def _total(x: Array, axis: tuple[int, ...], keepdims: bool, dtype: Any) -> Array:
    """Sums; a sum of one number is that number + 0.0, which XLA takes for the number."""
    result = jnp.sum(x, axis=axis, keepdims=keepdims, dtype=dtype)
    is_one = as_dtype(x.dtype).is_floating and all(x.shape[i] == 1 for i in axis)
    return with_zero(result) if is_one else result


@jax.custom_jvp
def _product_of_rows(x: Array) -> Array:
    """Returns products along the last axis; of finite numbers with a 0 it is 0, whatever the order."""
    size = lax.abs(x)
    vanishes = (jnp.min(size, -1, keepdims=True) == 0) & (jnp.max(size, -1, keepdims=True) < jnp.inf)
    return jnp.prod(lax.select(jnp.broadcast_to(vanishes, x.shape), jnp.clip(x, -1, 1), x), -1)


@_product_of_rows.defjvp
def _product_tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """Multiplies each tangent by the product of all other numbers, without dividing by numbers that may be 0."""
    (x,), (dx,) = primals, tangents
    ones = jnp.ones((*x.shape[:-1], 1), x.dtype)
    before = jnp.concatenate([ones, lax.cumprod(x, x.ndim - 1)[..., :-1]], -1)
    after = jnp.concatenate([lax.cumprod(x, x.ndim - 1, reverse=True)[..., 1:], ones], -1)
    is_zero = x == 0
    zeros = jnp.sum(is_zero, -1, keepdims=True) - is_zero
    vanishes = (zeros > 0) & jnp.all(jnp.isfinite(x), -1, keepdims=True)
    others = lax.select(vanishes, jnp.zeros_like(x), before * after)
    return _product_of_rows(x), jnp.sum(others * dx, -1)


def _product(x: Array, axis: tuple[int, ...], keepdims: bool, dtype: Any) -> Array:
    size = math.prod(x.shape[i] for i in axis)
    if not as_dtype(x.dtype).is_floating or size < 2:
        return jnp.prod(x, axis=axis, keepdims=keepdims, dtype=dtype)
    others = [i for i in range(x.ndim) if i not in axis]
    rows = lax.reshape(lax.transpose(x, (*others, *axis)), (*(x.shape[i] for i in others), size))
    kept = [1 if i in axis else dim for i, dim in enumerate(x.shape)]
    return lax.reshape(_product_of_rows(rows), kept if keepdims else [x.shape[i] for i in others])


RULES.update({"sum": _accumulating(_total), "prod": _accumulating(_product)})
RULES.update({"max": _extreme(jnp.max, lax.argmax), "min": _extreme(jnp.min, lax.argmin)})
RULES.update({"any": _choosing(jnp.any), "all": _choosing(jnp.all)})


def _position(function: Callable[..., Array]) -> Rule:
    def rule(x: Array, axis: int, keepdims: bool) -> Array:
        result = function(x, axis, _INDEX)
        return lax.expand_dims(result, (axis,)) if keepdims else result

    return rule


RULES.update({"argmax": _position(lax.argmax), "argmin": _position(lax.argmin)})


@computes("cumsum")
def _cumsum(x: Array, axis: int) -> Array:
    dtype: DType = as_dtype(x.dtype)
    return convert(lax.cumsum(convert(x, dtype.accumulation), axis), dtype)


@computes("sort")
def _sort(x: Array, axis: int, descending: bool) -> tuple[Any, ...]:
    """Sorts stably; a stable descending order is the ascending one of the reversed elements, read backwards."""
    places = lax.broadcasted_iota(_INDEX, x.shape, axis)
    operands = (lax.rev(x, (axis,)), lax.rev(places, (axis,))) if descending else (x, places)
    values, order = lax.sort(operands, dimension=axis, is_stable=True, num_keys=1)
    return (lax.rev(values, (axis,)), lax.rev(order, (axis,))) if descending else (values, order)
