"""Rules of block-quantised products. The layouts are read as ``lang_core`` describes them."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lang_core import (
    ACTIVATION_BITS,
    BLOCK,
    Activations,
    BlockLayout,
    DType,
    Encoding,
    GraphError,
    Plane,
    SubScales,
    f32,
)
from lang_core.ops import LARGEST_INTEGER, LEAST_MAGNITUDE, PLANE_BASE
from run_jax._contract import exact
from run_jax._rules import Array, computes, convert

_SCALE_BYTES = 16


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _quantized(x: Array, bits: int) -> tuple[Array, Array]:
    """Returns integers f32 [.., K / 32, 32] and scales f32 [.., K / 32] of x [.., K]."""
    blocks = convert(x, f32).reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
    most = jnp.abs(blocks).max(axis=-1)
    most = jnp.where(most < np.float32(LEAST_MAGNITUDE), np.float32(0), most)
    # The barriers keep each division: XLA would multiply by 1 / 127, and make one division of two.
    largest = jnp.full_like(most, LARGEST_INTEGER[bits])
    scale = lax.optimization_barrier(most / lax.optimization_barrier(largest))
    inverse = jnp.where(most == 0, np.float32(0), np.float32(1) / scale)
    q = jnp.round(blocks * inverse[..., None])
    return jnp.where(jnp.isfinite(q), q, np.float32(0)), scale


@_quantized.defjvp
def _no_gradient(bits: int, primals: Any, tangents: Any) -> NoReturn:
    """Refuses, as ``compile_dag.gradient`` does: the derivative of rounding is 0, which callers do not want."""
    raise GraphError(
        "block_quantize: products with packed weights round activations to integers, which has no gradient: take "
        "exact activations, train the model unpacked, or put jax.lax.stop_gradient before it"
    )


@computes("block_quantize")
def _block_quantize(x: Array, bits: int) -> tuple[Array, Array, Array]:
    q, scale = _quantized(x, bits)
    total, q = q.sum(axis=-1).astype(np.int32), q.reshape(x.shape)
    if bits == 8:
        return q.astype(np.int8)[..., None, :], scale, total
    high = jnp.round(q / np.float32(PLANE_BASE))
    return jnp.stack([high, q - high * np.float32(PLANE_BASE)], axis=-2).astype(np.int8), scale, total


@computes("block_product")
def _block_product(planes: Array, scale: Array, total: Array, weight: Array, encoding: Encoding, dtype: DType) -> Array:
    del total
    return _product(scaled_planes(planes, scale), weight, encoding, dtype)


def scaled_planes(planes: Array, scale: Array) -> Array:
    """Returns x f32 [.., K] of planes i8 [.., 1 or 2, K] and scales [.., K / 32]."""
    high, *low = (planes[..., place, :].astype(np.float32) for place in range(planes.shape[-2]))
    q = high * np.float32(PLANE_BASE) + low[0] if low else high
    return _scaled(q.reshape(*scale.shape, BLOCK), scale)


@computes("packed_linear")
def _packed_linear(x: Array, weight: Array, encoding: Encoding, dtype: DType, activations: Activations) -> Array:
    return _product(activations_of(x, activations), weight, encoding, dtype)


def activations_of(x: Array, activations: Activations) -> Array:
    """Returns x [.., K] in f32, rounded if the activations are."""
    return convert(x, f32) if activations == "exact" else _scaled(*_quantized(x, ACTIVATION_BITS[activations]))


def _scaled(q: Array, scale: Array) -> Array:
    """Returns x [.., K] of its integers [.., K / 32, 32] and scales [.., K / 32]."""
    return (q * scale[..., None]).reshape(*scale.shape[:-1], BLOCK * scale.shape[-1])


def _product(x: Array, weight: Array, encoding: Encoding, dtype: DType) -> Array:
    dimensions = (((x.ndim - 1,), (1,)), ((), ()))
    return convert(lax.dot_general(x, unpacked(weight, encoding), dimensions, precision=exact()), dtype)


@computes("dequantize")
def _dequantize(packed: Array, encoding: Encoding, dtype: DType) -> Array:
    return convert(unpacked(packed, encoding), dtype)


def unpacked(packed: Array, encoding: Encoding) -> Array:
    """Returns f32 [.., K] of packed blocks i8 [.., K / block * block_bytes]."""
    count = packed.shape[-1] // encoding.block_bytes
    stored = lax.bitcast_convert_type(packed, np.uint8)
    weights = _weights(encoding.layout, stored.reshape(-1, encoding.block_bytes))
    return weights.reshape(*packed.shape[:-1], count * encoding.block)


def _weights(layout: BlockLayout, blocks: Array) -> Array:
    """Returns f32 [n, size] of blocks u8 [n, bytes], in the steps of ``lang_core``'s reference."""
    values = _values(layout, blocks)
    scale = _power_of_two(blocks, layout.scale) if layout.exponent else _half(blocks, layout.scale)
    if layout.sub_scales is None:
        weights = values * scale
        if layout.minimum is None:
            return weights
        minimum = _half(blocks, layout.minimum)
        return weights + (minimum if layout.adds_minimum else -minimum)
    parts = layout.parts
    numbers = _sub_scales(layout, layout.sub_scales, blocks)
    weights = values.reshape(-1, parts, layout.scaled) * (scale * numbers[:, :parts])[..., None]
    if layout.minimum is not None:
        weights = weights - (_half(blocks, layout.minimum) * numbers[:, parts:])[..., None]
    return weights.reshape(-1, layout.size)


def _values(layout: BlockLayout, blocks: Array) -> Array:
    """Returns the values of the integers, f32 [n, size]."""
    stored = _integers(layout.planes, layout.size, blocks)
    if layout.table is not None:
        return jnp.asarray(np.array(layout.table, np.float32))[stored]
    if layout.planes[0].bits == 8:
        stored = lax.bitcast_convert_type(stored, np.int8)
    return stored.astype(np.float32) - np.float32(layout.offset)


def _integers(planes: Sequence[Plane], size: int, blocks: Array) -> Array:
    """Returns integers as they are stored, u8 [n, size]."""
    first, *others = planes
    integers = _plane(first, size, blocks)
    for plane in others:
        integers = integers | _plane(plane, size, blocks) << np.uint8(plane.up)
    return integers


def _plane(plane: Plane, size: int, blocks: Array) -> Array:
    stored = blocks[:, plane.at : plane.at + size * plane.bits // 8].reshape(-1, size // plane.run, 1, plane.span)
    mask = np.uint8((1 << plane.bits) - 1)
    parts = [stored >> np.uint8(shift) & mask for shift in range(0, 8, plane.bits)]
    return jnp.concatenate(parts, axis=2).reshape(-1, size)


def _sub_scales(layout: BlockLayout, scales: SubScales, blocks: Array) -> Array:
    """Returns the small integers, f32 [n, count]. Bit fields stay within bytes, so each byte is shifted by itself."""
    if scales.planes:
        stored = _integers(scales.planes, layout.parts * (1 if layout.minimum is None else 2), blocks)
    else:
        stored = blocks[:, scales.at : scales.at + _SCALE_BYTES]
        if scales.fields:
            words, joined = stored.reshape(-1, 4, 4), jnp.zeros((), np.uint8)
            for field in scales.fields:
                right, mask = (np.array(bits, np.uint8)[:, None] for bits in (field.right, field.mask))
                joined = joined | words[:, np.array(field.words)] >> right & mask
            stored = joined.reshape(-1, _SCALE_BYTES)
    numbers = lax.bitcast_convert_type(stored, np.int8) if scales.signed else stored
    return numbers.astype(np.float32) - np.float32(scales.offset)


def _power_of_two(blocks: Array, place: int) -> Array:
    """Returns 2**(e - 128) of the byte e with this place, f32 [n, 1]."""
    e = blocks[:, place : place + 1].astype(np.uint32)
    bits = jnp.where(e < 2, np.uint32(1 << 21) << e, (e - np.uint32(1)) << np.uint32(23))
    return lax.bitcast_convert_type(bits, np.float32)


def _half(blocks: Array, place: int) -> Array:
    """Returns the f16 that starts at this byte, as f32 [n, 1]."""
    return lax.bitcast_convert_type(blocks[:, place : place + 2], np.float16).astype(np.float32)[:, None]
