"""Block-quantised weights: GGUF's layouts of blocks of 32, byte for byte.

A packed matrix [N, K] is an i8 array [N, K / 32 * bytes of a block]: block after block along K. The layouts are those
of ggml (``ggml-common.h``): an f16 scale d, then the integers q; the weight is ``d * q``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from lang_core._dtypes import f32, i8
from lang_core._errors import ConfigError, near_names
from lang_core._spec import TensorSpec

BLOCK: Final = 32  # elements of a block, along the last axis
_SCALE_BYTES: Final = 2
_LARGEST_HALF: Final = 65504.0
_GROUP: Final = 4096  # blocks that are packed at a time: what is computed of them stays in a core's cache
_BELOW_HALF: Final = np.nextafter(np.float32(0.5), np.float32(0))


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a block of 32 weights is packed.

    Attributes:
        name: GGUF's, in lower case.
        block_bytes: of a block, the scale's two bytes included.
        bits: of an integer.
        zero: what is subtracted from a stored integer.
    """

    name: str
    block_bytes: int
    bits: int
    zero: int

    def packed(self, spec: TensorSpec) -> TensorSpec:
        """The spec of the packed array: i8 [.., K / 32 * block_bytes].

        Raises:
            ConfigError: the last dimension is no multiple of 32.
        """
        if not self.takes(spec.shape):
            raise ConfigError(
                f"{spec!r} cannot be packed as {self.name}: blocks of {BLOCK} go along the last axis, which must be a "
                f"multiple of {BLOCK}"
            )
        return TensorSpec((*spec.shape[:-1], spec.shape[-1] // BLOCK * self.block_bytes), i8)

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this shape can be packed."""
        return bool(shape) and shape[-1] > 0 and shape[-1] % BLOCK == 0

    def columns(self, packed_columns: int) -> int | None:
        """K of so many bytes; None where they are no whole blocks."""
        blocks, rest = divmod(packed_columns, self.block_bytes)
        return None if rest else blocks * BLOCK

    @property
    def largest_weight(self) -> float:
        """The largest magnitude that a block can have: the scale is an f16."""
        return _LARGEST_HALF * (8 if self.bits == 4 else 127)

    def pack(self, weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """i8 [.., K / 32 * block_bytes] of f32 [.., K], finite: what the gguf package gives, bit for bit."""
        blocks = np.ascontiguousarray(weights, np.float32).reshape(-1, BLOCK)
        packed = np.empty((len(blocks), self.block_bytes), np.uint8)
        pack = _pack_nibbles if self.bits == 4 else _pack_bytes
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(blocks), _GROUP):
                pack(blocks[start : start + _GROUP], packed[start : start + _GROUP])
        return packed.view(np.int8).reshape(self.packed(TensorSpec(weights.shape, f32)).shape)

    def unpacked(self, packed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """f32 [.., K] of i8 [.., K / 32 * block_bytes]: what the gguf package gives, bit for bit."""
        count = packed.shape[-1] // self.block_bytes
        blocks = np.ascontiguousarray(packed).view(np.uint8).reshape(*packed.shape[:-1], count, self.block_bytes)
        scales = np.ascontiguousarray(blocks[..., :_SCALE_BYTES]).view(np.float16).astype(np.float32)
        stored = blocks[..., _SCALE_BYTES:]
        if self.bits == 4:  # low nibbles are elements 0 to 15, high ones 16 to 31
            stored = np.concatenate([stored & 15, stored >> 4], axis=-1)
        integers = stored.view(np.int8).astype(np.float32) - self.zero
        with np.errstate(invalid="ignore"):  # an infinite scale, and 0
            return (integers * scales).reshape(*packed.shape[:-1], count * BLOCK)


def _pack_bytes(blocks: np.ndarray[Any, Any], packed: np.ndarray[Any, Any]) -> None:
    """f32 [n, 32] to u8 [n, 34]: the largest magnitude becomes 127; halves are rounded away from 0."""
    scaled = np.abs(blocks)
    scale = _columns(scaled).max(axis=0) / np.float32(127)
    np.multiply(blocks, _inverse(scale), out=scaled)
    # The largest number below 1/2, and not 1/2: with that 0.49999997 would become 1.
    scaled += np.copysign(_BELOW_HALF, scaled)
    packed[:, :_SCALE_BYTES] = _halves(scale)
    packed[:, _SCALE_BYTES:].view(np.int8)[...] = scaled


def _pack_nibbles(blocks: np.ndarray[Any, Any], packed: np.ndarray[Any, Any]) -> None:
    """f32 [n, 32] to u8 [n, 18]: what is largest in magnitude becomes 0, that is -8; every step is rounded to f32."""
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


def _columns(blocks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[32, n], a copy: NumPy reduces its first axis three times as fast as the last one of [n, 32]."""
    return np.ascontiguousarray(blocks.T)


def _inverse(scale: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """1 / scale, [n, 1]; 0 of scales that are 0, or so small that it would be infinite: f16 has 0 for them."""
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    return np.where(np.isinf(inverse), np.float32(0), inverse)[:, np.newaxis]


def _halves(scale: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The f16s' bytes, [n, 2]."""
    return scale.astype(np.float16).view(np.uint8).reshape(-1, _SCALE_BYTES)


Q8_0: Final = Encoding("q8_0", block_bytes=34, bits=8, zero=0)
Q4_0: Final = Encoding("q4_0", block_bytes=18, bits=4, zero=8)
ENCODINGS: Final[Mapping[str, Encoding]] = MappingProxyType({each.name: each for each in (Q8_0, Q4_0)})


def encoding_named(name: str) -> Encoding:
    """Returns the encoding of a name.

    Raises:
        ConfigError: there is no such encoding.

    >>> encoding_named("q4_0").packed(TensorSpec((5, 64), "bf16"))
    i8[5,36]
    """
    found = ENCODINGS.get(name)
    if found is None:
        raise ConfigError(f"unknown encoding {name!r}: known are {', '.join(ENCODINGS)}{near_names(name, ENCODINGS)}")
    return found
