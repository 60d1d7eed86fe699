"""Rules of sums of products: f16 and bf16 are multiplied exactly and summed in f32."""

import math
import string
from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

from lang_core import DType, as_dtype, f32
from lang_core.ops import LONG_SUM
from run_jax._rules import Array, computes, convert

Axes = tuple[int, ...]
_BLOCK: Final = 1 << 7


def exact() -> Any:
    """Returns the precision of products: that of the dtype, unless JAX was told otherwise.

    Without it, accelerators multiply f32 with the bits of bf16 or TF32; ``jax.default_matmul_precision`` asks for that.
    """
    told = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue] - made at run time
    return None if told else lax.Precision.HIGHEST


@computes("dot_general")
def _dot_general(
    x: Array, y: Array, x_contract: Axes, y_contract: Axes, x_batch: Axes, y_batch: Axes, dtype: DType
) -> Array:
    work = dtype.accumulation
    if as_dtype(x.dtype).accumulation is not f32 or work is not f32:
        x, y = convert(x, work), convert(y, work)
    sizes = [x.shape[axis] for axis in x_contract]
    at = None
    if work.is_floating and math.prod(sizes) > LONG_SUM:  # XLA may add one product after the other
        longest = max(range(len(sizes)), key=sizes.__getitem__)
        a, b, at = x_contract[longest], y_contract[longest], len(x_batch)
        rows, columns = (array.size // math.prod(sizes) for array in (x, y))
        most = max(_BLOCK, rows * columns // (rows + columns))  # the blocks' results are no larger than the operands
        block = max(1, most * sizes[longest] // math.prod(sizes))
        x, y = _in_blocks(x, a, block), _in_blocks(y, b, block)
        x_contract, y_contract = _moved(x_contract, a), _moved(y_contract, b)
        x_batch, y_batch = (*_moved(x_batch, a), a), (*_moved(y_batch, b), b)
    dimensions = ((x_contract, y_contract), (x_batch, y_batch))
    product = lax.dot_general(x, y, dimensions, precision=exact(), preferred_element_type=work.numpy)
    return convert(product if at is None else jnp.sum(product, axis=at), dtype)


def _in_blocks(x: Array, axis: int, block: int) -> Array:
    """Returns a tensor with an axis as two, blocks and their elements; zeros fill the last block."""
    blocks = -(-x.shape[axis] // block)
    padding = [(0, blocks * block - dim if i == axis else 0) for i, dim in enumerate(x.shape)]
    return jnp.pad(x, padding).reshape((*x.shape[:axis], blocks, block, *x.shape[axis + 1 :]))


def _moved(axes: Axes, split: int) -> Axes:
    """Returns axes of a tensor of which one was split in two: the second half takes its place."""
    return tuple(axis + (axis >= split) for axis in axes)


@computes("conv")
def _conv(
    x: Array, kernel: Array, strides: Axes, padding: tuple[tuple[int, int], ...], dilation: Axes, groups: int
) -> Array:
    dtype = as_dtype(x.dtype)
    spatial = string.ascii_lowercase[: x.ndim - 2]
    shape = _conv_shape(x, kernel, strides, padding, dilation)
    if 0 in (*shape, *kernel.shape, *x.shape):
        return jnp.zeros(shape, x.dtype)
    result = lax.conv_general_dilated(
        convert(x, dtype.accumulation),
        convert(kernel, dtype.accumulation),
        strides,
        padding,
        rhs_dilation=dilation,
        dimension_numbers=(f"N{spatial}C", f"{spatial}IO", f"N{spatial}C"),
        feature_group_count=groups,
        precision=exact(),
    )
    return convert(result, dtype)


def _conv_shape(x: Array, kernel: Array, strides: Axes, padding: Any, dilation: Axes) -> Axes:
    sizes = zip(x.shape[1:-1], kernel.shape[:-2], strides, padding, dilation, strict=True)
    spatial = (max((n + low + high - d * (taps - 1) - 1) // s + 1, 0) for n, taps, s, (low, high), d in sizes)
    return (x.shape[0], *spatial, kernel.shape[-1])


def _chosen(cache: Array, rows: Array) -> Array:
    """Returns of a cache the entries of each sequence's row, or of all its rows: [B, K, S, H]."""
    taken = jnp.take(cache, rows, axis=0, mode="clip")
    if rows.ndim == 1:
        return taken
    batch, pages, heads, page, size = taken.shape
    return jnp.swapaxes(taken, 1, 2).reshape(batch, heads, pages * page, size)


@computes("cached_attention")
def _cached_attention(q: Array, k: Array, v: Array, bias: Array, *rows_and_scale: Any) -> Array:
    *rows, scale = rows_and_scale
    k, v = (chosen_entries(array, rows) for array in (k, v))
    return attended(q, k, v, bias, scale)


def chosen_entries(cache: Array, rows: Sequence[Array]) -> Array:
    """Returns the entries of each sequence, [B, K, S, H], of a cache that may have more rows."""
    for row in rows:
        cache = _chosen(cache, row)
    return cache


def attended(q: Array, k: Array, v: Array, bias: Array, scale: float) -> Array:
    """Returns ``softmax(scale * q k^T + bias) v``, computed in f32, in q's dtype."""
    dtype = as_dtype(q.dtype)
    q, k, v = (convert(array, f32) for array in (q, k, v))
    scores = jnp.einsum("bkgth,bksh->bkgts", q, k, precision=exact()) * jnp.float32(scale)
    weights = jax.nn.softmax(scores + bias[:, None, None], axis=-1)
    return convert(jnp.einsum("bkgts,bksh->bkgth", weights, v, precision=exact()), dtype)
