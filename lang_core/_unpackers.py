"""What the bytes of blocks say: f32 [n, block] of u8 [n, bytes of a block], each step rounded as the reference's is.

Names of fields are ggml's. An f16 scale ``d`` is for the whole block.
"""

from typing import Any, Final

import numpy as np

_SUPER: Final = 256  # weights of a super-block

_Array = np.ndarray[Any, Any]


def unpack_q8_0(blocks: _Array) -> _Array:
    """d, then 32 integers of 8 bits: ``d * q``."""
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _half(blocks, 0)


def unpack_q4_0(blocks: _Array) -> _Array:
    """d, then 16 pairs of 4 bits, low ones the elements 0 to 15 and high ones 16 to 31: ``d * (q - 8)``."""
    stored = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=-1)
    return (stored.astype(np.float32) - 8) * _half(blocks, 0)


def unpack_q4_k(blocks: _Array) -> _Array:
    """Eight sub-blocks of 32, each with a scale sc and a minimum m of 6 bits: ``(d * sc) * q - (dmin * m)``.

    d, dmin, then 12 bytes of sc and m, then four times 32 bytes: low nibbles are one sub-block, high ones the next.
    """
    low, mins, high = (blocks[:, start : start + 4] for start in (4, 8, 12))
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 2) & 48)], axis=-1)
    minima = np.concatenate([mins & 63, (high >> 4) | ((mins >> 2) & 48)], axis=-1)
    scale = (_half(blocks, 0) * scales.astype(np.float32))[..., np.newaxis]
    minimum = (_half(blocks, 2) * minima.astype(np.float32))[..., np.newaxis]
    stored = blocks[:, 16:].reshape(-1, 4, 1, 32)
    q = np.concatenate([stored & 15, stored >> 4], axis=2).reshape(-1, 8, 32).astype(np.float32)
    return (scale * q - minimum).reshape(-1, _SUPER)


def unpack_q6_k(blocks: _Array) -> _Array:
    """Sixteen sub-blocks of 16, each with a scale sc of 8 bits and a sign: ``(d * sc) * (q - 32)``.

    128 bytes of four low bits, 64 of two high bits, the scales, d. Of each half of the block: low nibbles of 64 bytes
    are its first 64 elements, high nibbles its last; of 32 bytes each has the high bits of elements 32 apart.
    """
    nibbles = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([nibbles & 15, nibbles >> 4], axis=2).reshape(-1, 16, 16)
    pairs = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    high = np.concatenate([pairs >> shift for shift in (0, 2, 4, 6)], axis=2).reshape(-1, 16, 16)
    q = (low | ((high & 3) << 4)).astype(np.float32) - 32
    scale = _half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return (scale[..., np.newaxis] * q).reshape(-1, _SUPER)


def _half(blocks: _Array, place: int) -> _Array:
    """The f16 whose first byte has this place, as f32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, place : place + 2]).view(np.float16).astype(np.float32)
