"""Rules of quantized caches."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lang_core import Encoding, f32
from lang_core.ops import LEAST_MAGNITUDE
from run_jax._contract import attended, chosen_entries
from run_jax._packed import unpacked
from run_jax._rules import Array, computes, convert

_BYTE = 8


@computes("quantize")
def _quantize(x: Array, encoding: Encoding) -> Array:
    size, bits = encoding.block, encoding.bits
    blocks = convert(x, f32).reshape(*x.shape[:-1], x.shape[-1] // size, size) + np.float32(0)
    finite = jnp.isfinite(blocks).all(axis=-1, keepdims=True)
    most = jnp.abs(blocks).max(axis=-1, keepdims=True)
    kept = finite & (most >= np.float32(LEAST_MAGNITUDE))
    blocks, most = (jnp.where(kept, array, np.float32(0)) for array in (blocks, most))
    if bits == _BYTE:
        # The barriers keep the division, as in block_quantize.
        scale = lax.optimization_barrier(most / lax.optimization_barrier(jnp.full_like(most, 127)))
    else:
        place = jnp.argmax(jnp.abs(blocks), axis=-1, keepdims=True)
        scale = jnp.take_along_axis(blocks, place, axis=-1) * np.float32(-1 / (1 << bits - 1))
    inverse = np.float32(1) / jnp.where(kept, scale, np.float32(1))
    scaled = lax.optimization_barrier(blocks * inverse)
    if bits == _BYTE:
        stored = lax.round(scaled, lax.RoundingMethod.AWAY_FROM_ZERO).astype(np.int8)
    else:
        q = jnp.minimum((scaled + np.float32((1 << bits - 1) + 0.5)).astype(np.int32), (1 << bits) - 1)
        pairs = q[..., : size // 2] | q[..., size // 2 :] << bits
        stored = lax.bitcast_convert_type(pairs.astype(np.uint8), np.int8)
    half = scale.astype(np.float16)
    half = jnp.where(finite & jnp.isfinite(half), half, np.float16("nan"))
    halves = lax.bitcast_convert_type(half[..., 0], np.int8)
    return jnp.concatenate([halves, stored], axis=-1).reshape(*x.shape[:-1], x.shape[-1] // size * encoding.block_bytes)


@computes("packed_cached_attention")
def _packed_cached_attention(q: Array, k: Array, v: Array, bias: Array, *others: Any) -> Array:
    *rows, scale, encoding = others
    k, v = (unpacked(chosen_entries(array, rows), encoding) for array in (k, v))
    return attended(q, k, v, bias, scale)
