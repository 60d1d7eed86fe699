"""Trials of sums of products."""

from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from lang_core import DType
from tests.differential._draw import dtype_of, generator, numbers, shape_of, tame
from tests.differential._trial import Array, Draw, Trial, trials

_WIDER: Final = {"f16": "f32", "bf16": "f32", "f32": "f64", "i8": "i32", "u8": "i64", "i32": "i64"}
_HIGHEST: Final = lax.Precision.HIGHEST


def _size(x: Any) -> Any:
    """|x|, 0 where that is not finite: such sums must be exact."""
    return jnp.where(jnp.isfinite(x), jnp.abs(x), 0)


@trials("dot_general")
def _dot_general(draw: Draw, name: str) -> Trial:
    dtype, rng = dtype_of(draw, "number"), generator(draw)
    batch, left, right, inner = (shape_of(draw, draw(st.integers(0, 2)), most=4) for _ in range(4))
    x_axes = draw(st.permutations(range(len(batch + left + inner))))
    y_axes = draw(st.permutations(range(len(batch + right + inner))))
    x = numbers(draw, rng, batch + left + inner, dtype).transpose(x_axes).copy()
    y = numbers(draw, rng, batch + right + inner, dtype).transpose(y_axes).copy()
    x_at, y_at = np.argsort(x_axes).tolist(), np.argsort(y_axes).tolist()
    b, n = len(batch), len(inner)
    contract = tuple(x_at[len(x_at) - n :]), tuple(y_at[len(y_at) - n :])
    batches = tuple(x_at[:b]), tuple(y_at[:b])
    if draw(st.booleans()):
        contract = tuple(axis - x.ndim for axis in contract[0]), contract[1]
    positive = tuple(axis % max(x.ndim, 1) for axis in contract[0]), contract[1]
    wanted = _WIDER.get(dtype.name, dtype.name) if draw(st.booleans()) else dtype.name
    said = None if wanted == dtype.name else wanted
    kind: Any = {"i32": jnp.int32, "i64": jnp.int64, "i8": jnp.int8, "u8": jnp.uint8}.get(wanted, jnp.float64)

    def reference(x: Any, y: Any) -> Any:
        return lax.dot_general(x.astype(kind), y.astype(kind), (positive, batches), precision=_HIGHEST)

    return Trial(
        name,
        f"{contract}, {batches}, {said}",
        lambda c, x, y: c.ops.dot_general(x, y, contract, batches, said),
        (x, y),
        reference,
        (wanted,),
        ulps=2,
        magnitude=lambda x, y: reference(_size(x), _size(y)),
    )


@trials("linear")
def _linear(draw: Draw, name: str) -> Trial:
    dtype, rng = dtype_of(draw, "number"), generator(draw)
    inner, outer = draw(st.integers(0, 5)), draw(st.integers(0, 4))
    x = numbers(draw, rng, (*shape_of(draw, draw(st.integers(0, 3))), inner), dtype)
    weight, bias = numbers(draw, rng, (outer, inner), dtype), numbers(draw, rng, (outer,), dtype)
    inputs = (x, weight, bias) if draw(st.booleans()) else (x, weight)

    def reference(x: Any, w: Any, *bias: Any) -> Any:
        return sum(bias, jnp.matmul(x, w.T, precision=_HIGHEST))

    return Trial(
        name,
        "",
        lambda c, *xs: c.ops.linear(*xs),
        inputs,
        reference,
        (dtype.name,),
        ulps=3,
        magnitude=lambda *xs: reference(*map(_size, xs)),
    )


def _finite(_: Draw, rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return tame(rng, shape, dtype)


@trials("conv")
def _conv(draw: Draw, name: str) -> Trial:
    dtype, rng, rank = dtype_of(draw, "floating"), generator(draw), draw(st.integers(1, 3))
    groups, depth, outer = draw(st.integers(1, 3)), draw(st.integers(0, 2)), draw(st.integers(0, 2))
    size, taps = shape_of(draw, rank, most=6), shape_of(draw, rank, least=1, most=3)
    some = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    strides, dilation, padding = some(1, 3), some(1, 2), tuple(zip(some(0, 2), some(0, 2), strict=True))
    values = numbers if groups == 1 else _finite  # jax lets groups meet, by zeros, and infinity times 0 is NaN
    x = values(draw, rng, (draw(st.integers(0, 2)), *size, groups * depth), dtype)
    kernel = tame(rng, (*taps, depth, groups * outer), dtype)  # infinity times padding is unspecified
    axes = "HWD"[:rank]
    layout = f"N{axes}C", f"{axes}IO", f"N{axes}C"

    def reference(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(x, k, strides, padding, None, dilation, layout, groups, precision=_HIGHEST)

    return Trial(
        name,
        f"{strides}, {padding}, {dilation}, {groups}",
        lambda c, x, k: c.ops.conv(x, k, strides, padding, dilation, groups),
        (x, kernel),
        reference,
        (dtype.name,),
        ulps=2,
        magnitude=lambda x, k: reference(_size(x), _size(k)),
    )
