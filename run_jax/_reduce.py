"""Rules of reductions, running sums and order."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lang_core import DType, as_dtype
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


RULES.update({"sum": _accumulating(jnp.sum), "prod": _accumulating(jnp.prod)})
RULES.update(
    {"max": _choosing(jnp.max), "min": _choosing(jnp.min), "any": _choosing(jnp.any), "all": _choosing(jnp.all)}
)


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
