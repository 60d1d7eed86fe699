"""Rules of ops that move elements, and of those that make them."""

from typing import Any

import numpy as np
from jax import lax

from compile_dag import TAG
from lang_core import DType, Literal, i32
from run_jax._rules import Array, broadcast, computes, convert

Axes = tuple[int, ...]

computes("broadcast")(broadcast)


@computes("reshape")
def _reshape(x: Array, shape: Axes) -> Array:
    return lax.reshape(x, shape)


@computes("transpose")
def _transpose(x: Array, axes: Axes) -> Array:
    return lax.transpose(x, axes)


@computes("concat")
def _concat(*arrays_and_axis: Any) -> Array:
    *arrays, axis = arrays_and_axis
    return lax.concatenate(arrays, axis)


@computes("slice")
def _slice(x: Array, start: Axes, stop: Axes, step: Axes) -> Array:
    return lax.slice(x, start, stop, step)


@computes("pad")
def _pad(x: Array, value: Array, low: Axes, high: Axes, interior: Axes) -> Array:
    return lax.pad(x, value, tuple(zip(low, high, interior, strict=True)))


@computes("reverse")
def _reverse(x: Array, axes: Axes) -> Array:
    return lax.rev(x, axes)


@computes("iota")
def _iota(shape: Axes, axis: int, dtype: DType) -> Array:
    """Counts in i32 and converts: in a dtype of few bits the count itself would be rounded, or end."""
    return convert(lax.broadcasted_iota(np.dtype(i32.numpy), shape, axis), dtype)


@computes(TAG.name)
def _tag(x: Array, *_: Any) -> Array:
    """Passes x on: a graph's tags reach a sink only if values have data."""
    return x


@computes("constant")
def _constant(value: Literal) -> Array:
    return value.array
