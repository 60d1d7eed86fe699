"""Quantizers to blocks of 32, bit for bit as the gguf package's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

_SCALE_BYTES: Final = 2
_FIFTH_BYTES: Final = 4
_LARGEST_HALF: Final = 65504.0
# Halfway between neighbours of twice E2M1's numbers: 0, 1, 2, 3, 4, 6, 8, 12; negative ones follow after these eight.
_E2M1_MIDDLES: Final = (0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0)
_E2M1_SIGN: Final = 8
_BELOW_HALF: Final = np.nextafter(np.float32(0.5), np.float32(0))

_Array = np.ndarray[Any, Any]


Weighed = Callable[[_Array, _Array, _Array | None], None]
"""Function that packs blocks with the importance of their weights."""


@dataclass(frozen=True, slots=True)
class Quantizer:
    """Function that packs weights.

    Attributes:
        pack: writes blocks, f32 [n, block] and finite, to u8 [n, bytes of a block].
        largest: largest magnitude that a block takes; beyond it, its f16s would be infinite.
        weighed: function that packs weights with the importance of each one, f32 [n, block]; None if there is none.
    """

    pack: Callable[[_Array, _Array], None]
    largest: float
    weighed: Weighed | None = None


def _pack_bytes(blocks: _Array, packed: _Array) -> None:
    """Packs f32 [n, 32] into u8 [n, 34]: the largest magnitude becomes 127; halves are rounded away from 0."""
    scaled = np.abs(blocks)
    scale = _columns(scaled).max(axis=0) / np.float32(127)
    np.multiply(blocks, _inverse(scale), out=scaled)
    # The largest number below 1/2: with 1/2 itself 0.49999997 would become 1.
    scaled += np.copysign(_BELOW_HALF, scaled)
    packed[:, :_SCALE_BYTES] = _halves(scale)
    packed[:, _SCALE_BYTES:].view(np.int8)[...] = scaled


def _pack_signed(blocks: _Array, packed: _Array, *, bits: int) -> None:
    """Packs f32 [n, 32] into u8 [n, 18 or 22]: the largest in magnitude becomes 0, that is -8 or -16.

    Each step rounds to f32.
    """
    columns = _columns(blocks)
    most, least = columns.max(axis=0), columns.min(axis=0)
    largest = np.where(most > -least, most, least)
    (even,) = np.nonzero(most == -least)  # the first of them decides
    places = np.abs(blocks[even]).argmax(axis=1)
    largest[even] = blocks[even, places]
    middle = np.float32(1 << bits - 1)
    scale = largest / -middle
    inverse = _inverse(scale)
    scaled = blocks * inverse
    scaled += middle + np.float32(0.5)
    scaled[(inverse[:, 0] == 0) & (scale != 0)] = 0  # what the reference's casts of infinities give
    packed[:, :_SCALE_BYTES] = _halves(scale)
    _store(scaled, packed[:, _SCALE_BYTES:], bits)


def _pack_range(blocks: _Array, packed: _Array, *, bits: int) -> None:
    """Packs f32 [n, 32] into u8 [n, 20 or 24]: the least becomes 0, the greatest 15 or 31; each step rounds to f32."""
    columns = _columns(blocks)
    least = columns.min(axis=0)
    scale = (columns.max(axis=0) - least) / np.float32((1 << bits) - 1)
    inverse = _inverse(scale)
    scaled = blocks - least[:, np.newaxis]
    scaled *= inverse
    scaled += np.float32(0.5)
    packed[:, :_SCALE_BYTES] = _halves(scale)
    packed[:, _SCALE_BYTES : 2 * _SCALE_BYTES] = _halves(least)
    _store(scaled, packed[:, 2 * _SCALE_BYTES :], bits)


def _pack_e2m1(blocks: _Array, packed: _Array) -> None:
    """Packs f32 [n, 32] into u8 [n, 17]: the nearest of E2M1's numbers times a power of two, the smaller of two."""
    magnitudes = np.abs(blocks)
    largest = _columns(magnitudes).max(axis=0)
    with np.errstate(divide="ignore"):
        exponent = np.where(largest > 0, np.floor(np.log2(largest)) - np.float32(2) + np.float32(127), 0)
    exponent = exponent.astype(np.int32).astype(np.uint8)  # below 0 it wraps around, as in the reference
    unit = np.ldexp(np.float32(1), exponent.astype(np.int32) - 128)[:, np.newaxis]
    integers = np.zeros(blocks.shape, np.uint8)
    for middle in _E2M1_MIDDLES:
        integers += magnitudes > unit * np.float32(middle)
    integers[(blocks < 0) & (integers > 0)] += _E2M1_SIGN
    packed[:, 0] = exponent
    _store(integers, packed[:, 1:], 4)


def _store(numbers: _Array, packed: _Array, bits: int) -> None:
    """Writes the whole parts of numbers [n, 32]: the fifth bits, if there are, then pairs of the lowest four."""
    integers = np.minimum(numbers.astype(np.uint8), (1 << bits) - 1)
    if bits > 4:
        packed[:, :_FIFTH_BYTES] = np.packbits(integers >> 4, axis=1, bitorder="little")
        packed, integers = packed[:, _FIFTH_BYTES:], integers & 15
    eights = integers.view(np.uint64)  # eight at a time
    packed[...] = (eights[:, :2] | eights[:, 2:] << np.uint64(4)).view(np.uint8)


def _columns(blocks: _Array) -> _Array:
    """Returns a copy as [32, n]: NumPy reduces its first axis three times as fast as the last one of [n, 32]."""
    return np.ascontiguousarray(blocks.T)


def _inverse(scale: _Array) -> _Array:
    """Returns 1 / scale, [n, 1]; 0 for scales that are 0, or so small that f16 rounds them to 0."""
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    return np.where(np.isinf(inverse), np.float32(0), inverse)[:, np.newaxis]


def _halves(scale: _Array) -> _Array:
    """Returns the bytes of the f16s, [n, 2]."""
    return scale.astype(np.float16).view(np.uint8).reshape(-1, _SCALE_BYTES)


QUANTIZERS: Final[Mapping[str, Quantizer]] = MappingProxyType(
    {
        "q8_0": Quantizer(_pack_bytes, 127 * _LARGEST_HALF),
        "q4_0": Quantizer(partial(_pack_signed, bits=4), 8 * _LARGEST_HALF),
        "q4_1": Quantizer(partial(_pack_range, bits=4), _LARGEST_HALF),
        "q5_0": Quantizer(partial(_pack_signed, bits=5), 16 * _LARGEST_HALF),
        "q5_1": Quantizer(partial(_pack_range, bits=5), _LARGEST_HALF),
        "mxfp4": Quantizer(_pack_e2m1, float(np.finfo(np.float32).max)),
    }
)
"""Quantizers by the name of the encoding that they write."""
