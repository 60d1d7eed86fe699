"""Quantizers to blocks of 32, bit for bit as the gguf package's: an f16 scale, then integers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

_SCALE_BYTES: Final = 2
_LARGEST_HALF: Final = 65504.0
_BELOW_HALF: Final = np.nextafter(np.float32(0.5), np.float32(0))

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Quantizer:
    """Function that packs weights.

    Attributes:
        pack: writes blocks, f32 [n, block] and finite, to u8 [n, bytes of a block].
        largest: largest magnitude that a block can hold, since its scale is an f16.
    """

    pack: Callable[[_Array, _Array], None]
    largest: float


def _pack_bytes(blocks: _Array, packed: _Array) -> None:
    """Packs f32 [n, 32] into u8 [n, 34]: the largest magnitude becomes 127; halves are rounded away from 0."""
    scaled = np.abs(blocks)
    scale = _columns(scaled).max(axis=0) / np.float32(127)
    np.multiply(blocks, _inverse(scale), out=scaled)
    # The largest number below 1/2: with 1/2 itself 0.49999997 would become 1.
    scaled += np.copysign(_BELOW_HALF, scaled)
    packed[:, :_SCALE_BYTES] = _halves(scale)
    packed[:, _SCALE_BYTES:].view(np.int8)[...] = scaled


def _pack_nibbles(blocks: _Array, packed: _Array) -> None:
    """Packs f32 [n, 32] into u8 [n, 18]: the largest in magnitude becomes 0, that is -8; each step rounds to f32."""
    columns = _columns(blocks)
    most, least = columns.max(axis=0), columns.min(axis=0)
    largest = np.where(most > -least, most, least)
    (even,) = np.nonzero(most == -least)  # the first of them decides
    places = np.abs(blocks[even]).argmax(axis=1)
    largest[even] = blocks[even, places]
    scale = largest / np.float32(-8)
    inverse = _inverse(scale)
    scaled = blocks * inverse
    scaled += np.float32(8.5)
    scaled[(inverse[:, 0] == 0) & (scale != 0)] = 0  # what the reference's casts of infinities give
    integers = np.minimum(scaled.astype(np.uint8), 15).view(np.uint64)  # eight at a time
    packed[:, :_SCALE_BYTES] = _halves(scale)
    packed[:, _SCALE_BYTES:] = (integers[:, :2] | integers[:, 2:] << np.uint64(4)).view(np.uint8)


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
        "q4_0": Quantizer(_pack_nibbles, 8 * _LARGEST_HALF),
    }
)
"""Quantizers by the name of the encoding that they write."""
