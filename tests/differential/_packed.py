"""Trials of block-quantised weights."""

from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from lang_core import BLOCK, DTYPES, ENCODINGS, DType, Encoding, f64
from lang_core.ops import LARGEST_INTEGER
from tests.differential._draw import FLOATING, generator, shape_of
from tests.differential._trial import Array, Draw, Trial, trials

DRAWN_ENCODINGS: Final = st.sampled_from(list(ENCODINGS.values()))
SHORT_DTYPES: Final = [dtype for dtype in FLOATING if dtype is not f64]
_LEAST: Final = 2.0**-100
# Nearer to a tie than this, by bits, f32 may round otherwise than f64.
_TIES: Final = {8: 1e-3, 16: 0.02}


def drawn_x(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Blocks of any size along the last axis, some 0 or taken for 0; no element divides to nearly a half."""
    exponents = (-9, 9) if dtype.name == "f16" else (-120, 100)
    leading = (*shape[:-1], shape[-1] // BLOCK, 1)
    blocks = rng.normal(0, 1, (*leading[:-1], BLOCK)) * 2.0 ** rng.integers(*exponents, leading)
    blocks *= rng.random(leading) < 0.8
    x = blocks.astype(dtype.numpy).astype(np.float64)
    most = np.abs(x).max(axis=-1, keepdims=True, initial=0)
    for bits, tie in _TIES.items():
        quotient = np.abs(x) * LARGEST_INTEGER[bits] / np.where(most == 0, 1, most)
        x[np.abs(quotient % 1 - 0.5) < tie] = 0
    return x.reshape(shape).astype(dtype.numpy)


def quantized(x: Any, bits: int) -> tuple[Any, Any]:
    """Integers [.., K / 32, 32] and scales [.., K / 32, 1], in f64."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
    most = jnp.abs(blocks).max(axis=-1, keepdims=True, initial=0)
    most = jnp.where(most < _LEAST, 0, most)
    scale = most / LARGEST_INTEGER[bits]
    return jnp.where(most == 0, 0, jnp.round(blocks / jnp.where(most == 0, 1, scale))), scale


@trials("block_quantize")
def _block_quantize(draw: Draw, name: str) -> Trial:
    dtype, rng = draw(st.sampled_from(SHORT_DTYPES)), generator(draw)
    shape = (*shape_of(draw, draw(st.integers(0, 2)), most=3), BLOCK * draw(st.integers(1, 3)))

    bits = draw(st.sampled_from(sorted(LARGEST_INTEGER)))

    def reference(x: Any) -> Any:
        q, scale = quantized(x, bits)
        return _planes(q.reshape(x.shape), bits), scale[..., 0], q.sum(axis=-1).astype(jnp.int32)

    x = drawn_x(rng, shape, dtype)
    specs = ("i8", "f32", "i32")
    return Trial(name, f"{bits} bits", lambda c, x: c.ops.block_quantize(x, bits), (x,), reference, specs, ulps=1)


def _planes(q: Any, bits: int) -> Any:
    """i8 [.., bits / 8, K] of integers [.., K]."""
    high = jnp.round(q / 255)
    digits = [q] if bits == 8 else [high, q - 255 * high]
    return jnp.stack(digits, axis=-2).astype(jnp.int8)


def drawn_blocks(rng: np.random.Generator, shape: tuple[int, ...], encoding: Encoding, wild: bool) -> Array:
    """i8 [.., blocks * bytes], scales of any finite f16, or of moderate size."""
    blocks = rng.integers(0, 256, (*shape, encoding.block_bytes)).astype(np.uint8)
    for place in encoding.layout.halves:
        halves = rng.integers(0, 0x7C00, (*shape, 1)) | rng.integers(0, 2, (*shape, 1)) << 15
        scales = halves.astype(np.uint16).view(np.float16) if wild else rng.normal(0, 1, (*shape, 1)).astype(np.float16)
        blocks[..., place : place + 2] = scales.view(np.uint8)
    if encoding.layout.exponent:
        blocks[..., encoding.layout.scale] = rng.integers(*((1, 252) if wild else (120, 136)), shape)
    return blocks.view(np.int8).reshape(*shape[:-1], shape[-1] * encoding.block_bytes)


def unpacked(packed: Any, encoding: Encoding) -> Any:
    """f64 [.., K], from the bytes."""
    blocks = lax.bitcast_convert_type(packed, jnp.uint8)
    blocks = blocks.reshape(*packed.shape[:-1], packed.shape[-1] // encoding.block_bytes, encoding.block_bytes)
    weights = _WEIGHTS[encoding.name](blocks)
    return weights.reshape(*packed.shape[:-1], blocks.shape[-2] * encoding.block)


def _half(blocks: Any, place: int) -> Any:
    """f64 [.., 1]."""
    return lax.bitcast_convert_type(blocks[..., place : place + 2], jnp.float16).astype(jnp.float64)[..., None]


_Weights = Callable[[Any], Any]
_NORMAL_VALUES: Final = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
_E2M1: Final = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
_PLACE: Final = np.arange(256)


def _wide(*arrays: Any) -> list[Any]:
    return [array.astype(jnp.float64) for array in arrays]


def _q8_0(blocks: Any) -> Any:
    return lax.bitcast_convert_type(blocks[..., 2:], jnp.int8).astype(jnp.float64) * _half(blocks, 0)


def _nibbles(stored: Any) -> Any:
    """i32 [.., 32]: the low bits of sixteen bytes, then the high ones."""
    return jnp.concatenate([stored % 16, stored // 16], axis=-1).astype(jnp.int32)


def _fifth(stored: Any) -> Any:
    """i32 [.., 32]: the bits of four bytes, from the lowest."""
    place = _PLACE[:32]
    return (stored[..., place // 8] // 2 ** (place % 8) % 2).astype(jnp.int32)


def _table_32(table: Any, scale: _Weights, first: int) -> _Weights:
    return lambda blocks: jnp.asarray(table)[_nibbles(blocks[..., first:])] * scale(blocks)


def _offset_32(offset: int, first: int, fifth: int | None = None) -> _Weights:
    """q less an offset, times d."""

    def weights(blocks: Any) -> Any:
        high = 0 if fifth is None else 16 * _fifth(blocks[..., fifth : fifth + 4])
        return (_nibbles(blocks[..., first:]) + high - offset).astype(jnp.float64) * _half(blocks, 0)

    return weights


def _least_32(first: int, fifth: int | None = None) -> _Weights:
    """q times d, rounded to f32, and the least of the block."""

    def weights(blocks: Any) -> Any:
        high = 0 if fifth is None else 16 * _fifth(blocks[..., fifth : fifth + 4])
        return (_nibbles(blocks[..., first:]) + high).astype(jnp.float64) * _half(blocks, 0) + _half(blocks, 2)

    return weights


def _six_bits(blocks: Any) -> tuple[Any, Any]:
    """Scale and minimum of every weight, from the twelve bytes after d and dmin."""
    sub = _PLACE // 32
    low, high = blocks[..., 4 + sub % 4], blocks[..., 8 + sub % 4]
    scale = jnp.where(sub >= 4, blocks[..., 8 + sub] % 16 + low // 64 * 16, low % 64)
    least = jnp.where(sub >= 4, blocks[..., 8 + sub] // 16 + high // 64 * 16, high % 64)
    return scale, least


def _q4_k(blocks: Any) -> Any:
    """Weight by weight, from ggml's description: which byte it is in, and which scale it has. The same of all below."""
    q = blocks[..., 16 + 32 * (_PLACE // 64) + _PLACE % 32] // np.where(_PLACE // 32 % 2, 16, 1) % 16
    scale, q, least = _wide(_six_bits(blocks)[0], q, _six_bits(blocks)[1])
    return _half(blocks, 0) * scale * q - _half(blocks, 2) * least


def _q5_k(blocks: Any) -> Any:
    low = blocks[..., 48 + 32 * (_PLACE // 64) + _PLACE % 32] // np.where(_PLACE // 32 % 2, 16, 1) % 16
    q = low + 16 * (blocks[..., 16 + _PLACE % 32] // 2 ** (_PLACE // 32) % 2)
    scale, q, least = _wide(_six_bits(blocks)[0], q, _six_bits(blocks)[1])
    return _half(blocks, 0) * scale * q - _half(blocks, 2) * least


def _q2_k(blocks: Any) -> Any:
    q = blocks[..., 16 + 32 * (_PLACE // 128) + _PLACE % 32] // 4 ** (_PLACE // 32 % 4) % 4
    part = blocks[..., _PLACE // 16]
    q, scale, least = _wide(q, part % 16, part // 16)
    return _half(blocks, 80) * scale * q - _half(blocks, 82) * least


def _q3_k(blocks: Any) -> Any:
    part, (q, third) = (
        _PLACE // 16,
        _wide(
            blocks[..., 32 + 32 * (_PLACE // 128) + _PLACE % 32] // 4 ** (_PLACE // 32 % 4) % 4,
            blocks[..., _PLACE % 32] // 2 ** (_PLACE // 32) % 2,
        ),
    )
    low = blocks[..., 96 + part % 8] // np.where(part // 8, 16, 1) % 16
    high = blocks[..., 104 + part % 4] // 4 ** (part // 4) % 4
    (scale,) = _wide(low + 16 * high)
    return _half(blocks, 108) * (scale - 32) * (q + 4 * third - 4)


def _q6_k(blocks: Any) -> Any:
    half, quarter, within = _PLACE // 128, _PLACE % 128 // 32, _PLACE % 32
    low = blocks[..., 64 * half + 32 * (quarter % 2) + within] // np.where(quarter >= 2, 16, 1) % 16
    high = blocks[..., 128 + 32 * half + within] // 4**quarter % 4
    scale = lax.bitcast_convert_type(blocks[..., 192 + _PLACE // 16], jnp.int8).astype(jnp.float64)
    return _half(blocks, 208) * scale * (low.astype(jnp.float64) + 16 * high.astype(jnp.float64) - 32)


def _iq4_xs(blocks: Any) -> Any:
    sub, within = _PLACE // 32, _PLACE % 32
    q = blocks[..., 8 + 16 * sub + within % 16] // np.where(within >= 16, 16, 1) % 16
    low = blocks[..., 4 + sub // 2] // np.where(sub % 2, 16, 1) % 16
    (scale,) = _wide(low + 16 * (blocks[..., 2 + sub // 4] // 4 ** (sub % 4) % 4))
    return _half(blocks, 0) * (scale - 32) * jnp.asarray(_NORMAL_VALUES)[q.astype(jnp.int32)]


def _power(blocks: Any) -> Any:
    return 2.0 ** (blocks[..., :1].astype(jnp.float64) - 127)


_WEIGHTS: Final[dict[str, _Weights]] = {
    "q8_0": _q8_0,
    "q4_0": _offset_32(8, first=2),
    "q4_1": _least_32(first=4),
    "q5_0": _offset_32(16, first=6, fifth=2),
    "q5_1": _least_32(first=8, fifth=4),
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "iq4_nl": _table_32(_NORMAL_VALUES, lambda blocks: _half(blocks, 0), first=2),
    "iq4_xs": _iq4_xs,
    "mxfp4": _table_32(_E2M1, _power, first=1),
}


@trials("dequantize")
def _dequantize(draw: Draw, name: str) -> Trial:
    encoding, rng, dtype = draw(DRAWN_ENCODINGS), generator(draw), draw(st.sampled_from(FLOATING))
    shape = (*shape_of(draw, draw(st.integers(0, 2)), most=4), draw(st.integers(1, 3)))
    return Trial(
        name,
        f"{encoding.name}, {dtype}",
        lambda c, w: c.ops.dequantize(w, encoding, dtype),
        (drawn_blocks(rng, shape, encoding, wild=True),),
        lambda w: unpacked(w, encoding).astype(jnp.float32).astype(jnp.float64),  # what a weight is: rounded so
        (dtype.name,),
    )


@trials("packed_linear")
def _packed_linear(draw: Draw, name: str) -> Trial:
    encoding, rng, dtype = draw(DRAWN_ENCODINGS), generator(draw), draw(st.sampled_from(SHORT_DTYPES))
    wanted = draw(st.sampled_from([None, *(kind for kind in DTYPES if kind.is_floating)]))
    count, outer = draw(st.integers(1, 3)), draw(st.integers(0, 4))
    x = drawn_x(rng, (*shape_of(draw, draw(st.integers(0, 2)), most=3), count * encoding.block), dtype)
    weight = drawn_blocks(rng, (outer, count), encoding, wild=False)

    activations = draw(st.sampled_from(["exact", "q8"]))

    def product(x: Any, w: Any, of: Any) -> Any:
        if activations == "q8":
            q, scale = quantized(x, 8)
            x = (q * scale).reshape(x.shape)
        return jnp.matmul(of(x), of(unpacked(w, encoding)).T, precision=lax.Precision.HIGHEST)

    result = dtype if wanted is None else wanted
    return Trial(
        name,
        f"{encoding.name}, {wanted}, {activations}",
        lambda c, x, w: c.ops.packed_linear(x, w, encoding, wanted, activations),
        (x, weight),
        lambda x, w: product(x, w, lambda kind: kind),
        (result.name,),
        ulps=3 if result is not f64 else 3 * 2.0**29,  # summed in f32
        magnitude=lambda x, w: product(x, w, jnp.abs),
    )


@trials("block_product")
def _block_product(draw: Draw, name: str) -> Trial:
    encoding, rng, bits = draw(DRAWN_ENCODINGS), generator(draw), draw(st.sampled_from(sorted(LARGEST_INTEGER)))
    wanted = draw(st.sampled_from([kind for kind in DTYPES if kind.is_floating]))
    count, outer = draw(st.integers(1, 3)), draw(st.integers(0, 4))
    shape = (*shape_of(draw, draw(st.integers(0, 2)), most=3), count * encoding.block)
    planes = rng.integers(-127, 128, (*shape[:-1], bits // 8, shape[-1])).astype(np.int8)
    scale = rng.normal(0, 1, (*shape[:-1], shape[-1] // BLOCK)).astype(np.float32)
    weight = drawn_blocks(rng, (outer, count), encoding, wild=False)

    def product(planes: Any, scale: Any, w: Any, of: Any) -> Any:
        digits = planes.astype(jnp.float64)
        q = digits[..., 0, :] if bits == 8 else 255 * digits[..., 0, :] + digits[..., 1, :]
        x = (q.reshape(*scale.shape, BLOCK) * scale[..., None]).reshape(q.shape)
        return jnp.matmul(of(x), of(unpacked(w, encoding)).T, precision=lax.Precision.HIGHEST)

    total = planes[..., 0, :].reshape(*scale.shape, BLOCK).sum(axis=-1, dtype=np.int32)  # the eager rule needs none
    return Trial(
        name,
        f"{encoding.name}, {wanted}, {bits} bits",
        lambda c, p, s, t, w: c.ops.block_product((p, s, t), w, encoding, wanted),
        (planes, scale, total, weight),
        lambda p, s, t, w: product(p, s, w, lambda kind: kind),
        (wanted.name,),
        ulps=3 if wanted is not f64 else 3 * 2.0**29,  # summed in f32
        magnitude=lambda p, s, t, w: product(p, s, w, jnp.abs),
    )
