"""Trials of block-quantised weights."""

from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from lang_core import BLOCK, DTYPES, ENCODINGS, DType, Encoding, f64
from tests.differential._draw import FLOATING, generator, shape_of
from tests.differential._trial import Array, Draw, Trial, trials

_ENCODINGS: Final = st.sampled_from(list(ENCODINGS.values()))
_DTYPES: Final = [dtype for dtype in FLOATING if dtype is not f64]
_LEAST: Final = 2.0**-100
# Nearer to a tie than this, f32 may round otherwise than f64.
_TIE: Final = 1e-3


def _blocks(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Blocks of any size along the last axis, some 0 or taken for 0; no element divides to nearly a half."""
    exponents = (-9, 9) if dtype.name == "f16" else (-120, 100)
    leading = (*shape[:-1], shape[-1] // BLOCK, 1)
    blocks = rng.normal(0, 1, (*leading[:-1], BLOCK)) * 2.0 ** rng.integers(*exponents, leading)
    blocks *= rng.random(leading) < 0.8
    x = blocks.astype(dtype.numpy).astype(np.float64)
    most = np.abs(x).max(axis=-1, keepdims=True, initial=0)
    quotient = np.abs(x) * 127 / np.where(most == 0, 1, most)
    x[np.abs(quotient % 1 - 0.5) < _TIE] = 0
    return x.reshape(shape).astype(dtype.numpy)


def _quantized(x: Any) -> tuple[Any, Any]:
    """Integers [.., K / 32, 32] and scales [.., K / 32, 1], in f64."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
    most = jnp.abs(blocks).max(axis=-1, keepdims=True, initial=0)
    most = jnp.where(most < _LEAST, 0, most)
    scale = most / 127
    return jnp.where(most == 0, 0, jnp.round(blocks / jnp.where(most == 0, 1, scale))), scale


@trials("block_quantize")
def _block_quantize(draw: Draw, name: str) -> Trial:
    dtype, rng = draw(st.sampled_from(_DTYPES)), generator(draw)
    shape = (*shape_of(draw, draw(st.integers(0, 2)), most=3), BLOCK * draw(st.integers(1, 3)))

    def reference(x: Any) -> Any:
        q, scale = _quantized(x)
        return q.reshape(x.shape).astype(jnp.int8), scale[..., 0], q.sum(axis=-1).astype(jnp.int32)

    x = _blocks(rng, shape, dtype)
    return Trial(name, "", lambda c, x: c.ops.block_quantize(x), (x,), reference, ("i8", "f32", "i32"), ulps=1)


def _packed(rng: np.random.Generator, shape: tuple[int, ...], encoding: Encoding, wild: bool) -> Array:
    """i8 [.., blocks * bytes], scales of any finite f16, or of moderate size."""
    blocks = rng.integers(0, 256, (*shape, encoding.block_bytes)).astype(np.uint8)
    for place in encoding.layout.halves:
        halves = rng.integers(0, 0x7C00, (*shape, 1)) | rng.integers(0, 2, (*shape, 1)) << 15
        scales = halves.astype(np.uint16).view(np.float16) if wild else rng.normal(0, 1, (*shape, 1)).astype(np.float16)
        blocks[..., place : place + 2] = scales.view(np.uint8)
    return blocks.view(np.int8).reshape(*shape[:-1], shape[-1] * encoding.block_bytes)


def _unpacked(packed: Any, encoding: Encoding) -> Any:
    """f64 [.., K], from the bytes."""
    blocks = lax.bitcast_convert_type(packed, jnp.uint8)
    blocks = blocks.reshape(*packed.shape[:-1], packed.shape[-1] // encoding.block_bytes, encoding.block_bytes)
    weights = _WEIGHTS[encoding.name](blocks)
    return weights.reshape(*packed.shape[:-1], blocks.shape[-2] * encoding.block)


def _half(blocks: Any, place: int) -> Any:
    """f64 [.., 1]."""
    return lax.bitcast_convert_type(blocks[..., place : place + 2], jnp.float16).astype(jnp.float64)[..., None]


def _q8_0(blocks: Any) -> Any:
    return lax.bitcast_convert_type(blocks[..., 2:], jnp.int8).astype(jnp.float64) * _half(blocks, 0)


def _q4_0(blocks: Any) -> Any:
    stored = blocks[..., 2:]
    return (jnp.concatenate([stored % 16, stored // 16], axis=-1).astype(jnp.float64) - 8) * _half(blocks, 0)


def _q4_k(blocks: Any) -> Any:
    """Weight by weight, from ggml's description: which byte it is in, and which scale it has."""
    place = np.arange(256)
    sub = place // 32
    q = blocks[..., 16 + 32 * (place // 64) + place % 32] // np.where(sub % 2, 16, 1) % 16
    above = sub >= 4
    scale = jnp.where(
        above,
        blocks[..., 8 + sub] % 16 + blocks[..., 4 + sub % 4] // 64 * 16,
        blocks[..., 4 + sub % 4] % 64,
    )
    least = jnp.where(
        above,
        blocks[..., 8 + sub] // 16 + blocks[..., 8 + sub % 4] // 64 * 16,
        blocks[..., 8 + sub % 4] % 64,
    )
    wide = [array.astype(jnp.float64) for array in (scale, q, least)]
    return _half(blocks, 0) * wide[0] * wide[1] - _half(blocks, 2) * wide[2]


def _q6_k(blocks: Any) -> Any:
    """The same."""
    place = np.arange(256)
    half, quarter, within = place // 128, place % 128 // 32, place % 32
    low = blocks[..., 64 * half + 32 * (quarter % 2) + within] // np.where(quarter >= 2, 16, 1) % 16
    high = blocks[..., 128 + 32 * half + within] // 4**quarter % 4
    scale = lax.bitcast_convert_type(blocks[..., 192 + place // 16], jnp.int8).astype(jnp.float64)
    return _half(blocks, 208) * scale * (low.astype(jnp.float64) + 16 * high.astype(jnp.float64) - 32)


_WEIGHTS: Final = {"q8_0": _q8_0, "q4_0": _q4_0, "q4_k": _q4_k, "q6_k": _q6_k}


@trials("dequantize")
def _dequantize(draw: Draw, name: str) -> Trial:
    encoding, rng, dtype = draw(_ENCODINGS), generator(draw), draw(st.sampled_from(FLOATING))
    shape = (*shape_of(draw, draw(st.integers(0, 2)), most=4), draw(st.integers(1, 3)))
    return Trial(
        name,
        f"{encoding.name}, {dtype}",
        lambda c, w: c.ops.dequantize(w, encoding, dtype),
        (_packed(rng, shape, encoding, wild=True),),
        lambda w: _unpacked(w, encoding).astype(jnp.float32).astype(jnp.float64),  # what a weight is: rounded so
        (dtype.name,),
    )


@trials("packed_linear")
def _packed_linear(draw: Draw, name: str) -> Trial:
    encoding, rng, dtype = draw(_ENCODINGS), generator(draw), draw(st.sampled_from(_DTYPES))
    wanted = draw(st.sampled_from([None, *(kind for kind in DTYPES if kind.is_floating)]))
    count, outer = draw(st.integers(1, 3)), draw(st.integers(0, 4))
    x = _blocks(rng, (*shape_of(draw, draw(st.integers(0, 2)), most=3), count * encoding.block), dtype)
    weight = _packed(rng, (outer, count), encoding, wild=False)

    def product(x: Any, w: Any, of: Any) -> Any:
        q, scale = _quantized(x)
        return jnp.matmul(
            of((q * scale).reshape(x.shape)), of(_unpacked(w, encoding)).T, precision=lax.Precision.HIGHEST
        )

    result = dtype if wanted is None else wanted
    return Trial(
        name,
        f"{encoding.name}, {wanted}",
        lambda c, x, w: c.ops.packed_linear(x, w, encoding, wanted),
        (x, weight),
        lambda x, w: product(x, w, lambda kind: kind),
        (result.name,),
        ulps=3 if result is not f64 else 3 * 2.0**29,  # summed in f32
        magnitude=lambda x, w: product(x, w, jnp.abs),
    )
