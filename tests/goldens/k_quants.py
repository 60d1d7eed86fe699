"""Weights as types that the gguf package reads and does not write.

Q4_K and Q6_K: scales come from the range of each sub-block, where ggml searches for better ones: what comes out is a
file as any other. Of the other types blocks are drawn, with scales that make weights of the wanted size. Truth is what
the package reads in them.
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from lang_core import ENCODINGS

_SUPER = 256
_Type = GGMLQuantizationType
_WRITTEN = (
    _Type.Q8_0, _Type.Q4_0, _Type.Q4_1, _Type.Q5_0, _Type.Q5_1, _Type.MXFP4, _Type.TQ1_0, _Type.TQ2_0, _Type.BF16,
    _Type.F16, _Type.F32,
)  # fmt: skip


def quantize(array: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """Packed rows, u8 [.., bytes], of f32 [.., K]: as ``gguf.quants.quantize``, with the types that it lacks."""
    if kind in _WRITTEN:
        return quants.quantize(array, kind)
    make = {GGMLQuantizationType.Q4_K: _q4_k, GGMLQuantizationType.Q6_K: _q6_k}.get(kind)
    if make is None:
        return _drawn(array, kind)
    return make(array.reshape(-1, _SUPER)).reshape(*array.shape[:-1], -1)


def _drawn(array: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """u8 [.., bytes]: any integers, and scales that give the weights the array's standard deviation."""
    size, count = GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(kind).integers(0, 256, (array.size // size, count), np.uint8)
    if kind == _Type.NVFP4:
        blocks[:, :4] = 0x08  # four scales of 2**-7
    elif kind == _Type.IQ1_M:
        blocks[:, -1] = blocks[:, -1] & 0x0F | 0x20  # the upper bits of an f16 near 0.01
    else:
        encoding = ENCODINGS.get(kind.name.lower())
        places = encoding.layout.halves if encoding else (0,)
        _set_halves(blocks, places, 1.0)
        _set_halves(blocks, places, array.std() / quants.dequantize(blocks, kind).std())
    return blocks.reshape(*array.shape[:-1], -1)


def _set_halves(blocks: np.ndarray, places: tuple[int, ...], value: float) -> None:
    for place in places:
        blocks[:, place : place + 2] = _halves(np.array([value]))


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    """u8 [n, 144]: ``d * sc * q - dmin * m`` with q of 4 bits, sc and m of 6."""
    parts = blocks.reshape(-1, 8, 32)
    below = np.maximum(-parts.min(axis=-1), 0)
    step = (parts.max(axis=-1) + below) / 15
    d, sc = _scales(step, 63)
    dmin, m = _scales(below, 63)
    unit, least = (d * sc)[..., np.newaxis], (dmin * m)[..., np.newaxis]
    q = _nearest(parts + least, unit, 0, 15).astype(np.uint8).reshape(-1, 4, 2, 32)
    sc, m = sc.astype(np.uint8), m.astype(np.uint8)
    heads = [
        sc[:, :4] | (sc[:, 4:] >> 4 << 6),
        m[:, :4] | (m[:, 4:] >> 4 << 6),
        (sc[:, 4:] & 15) | ((m[:, 4:] & 15) << 4),
    ]
    stored = (q[:, :, 0] | (q[:, :, 1] << 4)).reshape(-1, 128)
    return np.concatenate([_halves(d), _halves(dmin), *heads, stored], axis=-1)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    """u8 [n, 210]: ``d * sc * (q - 32)`` with q of 6 bits, sc of 8 and a sign: that of the largest is turned round."""
    parts = blocks.reshape(-1, 16, 16)
    largest = np.take_along_axis(parts, np.abs(parts).argmax(axis=-1)[..., np.newaxis], -1)[..., 0]
    d, sc = _scales(np.abs(largest) / 32, 127)
    sc = np.where(largest > 0, -sc, sc)
    q = _nearest(parts, (d * sc)[..., np.newaxis], -32, 31).astype(np.int64) + 32
    q = q.astype(np.uint8).reshape(-1, 2, 4, 32)
    low = np.concatenate([q[:, :, :2] & 15 | (q[:, :, 2:] & 15) << 4], axis=-1).reshape(-1, 128)
    high = (q[:, :, 0] >> 4) | (q[:, :, 1] >> 4 << 2) | (q[:, :, 2] >> 4 << 4) | (q[:, :, 3] >> 4 << 6)
    return np.concatenate([low, high.reshape(-1, 64), sc.astype(np.int8).view(np.uint8), _halves(d)], axis=-1)


def _scales(wanted: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """An f16 for each block, f32 [n, 1], and integers up to ``most`` [n, parts], whose products are near the wanted."""
    d = (wanted.max(axis=-1, keepdims=True) / most).astype(np.float16).astype(np.float32)
    return d, _nearest(wanted, d, 0, most)


def _nearest(array: np.ndarray, unit: np.ndarray, least: int, most: int) -> np.ndarray:
    """Integers; 0 where the unit is."""
    quotient = np.divide(array, unit, out=np.zeros_like(array), where=unit != 0)
    return np.clip(np.rint(quotient), least, most)


def _halves(d: np.ndarray) -> np.ndarray:
    return d.astype(np.float16).view(np.uint8)
