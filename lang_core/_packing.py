"""Block-quantised weights: GGUF's layouts, byte for byte.

A packed matrix [N, K] is an i8 array [N, K / block * bytes of a block]: block after block along K. The layouts are
those of ggml (``ggml-common.h``): blocks of 32, or super-blocks of 256 whose parts have scales of their own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from lang_core._dtypes import f32, i8
from lang_core._errors import ConfigError, near_names
from lang_core._quantizers import BYTES, NIBBLES, Quantizer
from lang_core._spec import TensorSpec
from lang_core._unpackers import unpack_q4_0, unpack_q4_k, unpack_q6_k, unpack_q8_0

BLOCK: Final = 32  # elements of a block of what packed weights are multiplied with
_GROUP: Final = (
    4096  # blocks of 32 that are made or unpacked at a time: what is computed of them stays in a core's cache
)

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a block of weights is packed.

    Attributes:
        name: GGUF's, in lower case.
        block: weights of a block, a multiple of 32.
        block_bytes: of a block, all scales included.
        bits: of an integer.
        unpacker: f32 [n, block] of the bytes u8 [n, block_bytes] of blocks.
        quantizer: what packs weights; None where they can only be read.
    """

    name: str
    block: int
    block_bytes: int
    bits: int
    unpacker: Callable[[_Array], _Array] = field(repr=False, compare=False)
    quantizer: Quantizer | None = field(default=None, repr=False, compare=False)

    def packed(self, spec: TensorSpec) -> TensorSpec:
        """The spec of the packed array: i8 [.., K / block * block_bytes].

        Raises:
            ConfigError: the last dimension is no multiple of the block.
        """
        if not self.takes(spec.shape):
            raise ConfigError(
                f"{spec!r} cannot be packed as {self.name}: blocks of {self.block} go along the last axis, which must "
                f"be a multiple of {self.block}"
            )
        return TensorSpec((*spec.shape[:-1], spec.shape[-1] // self.block * self.block_bytes), i8)

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this shape can be packed."""
        return bool(shape) and shape[-1] > 0 and shape[-1] % self.block == 0

    def columns(self, packed_columns: int) -> int | None:
        """K of so many bytes; None where they are no whole blocks."""
        blocks, rest = divmod(packed_columns, self.block_bytes)
        return None if rest else blocks * self.block

    def pack(self, weights: _Array) -> _Array:
        """i8 [.., K / block * block_bytes] of f32 [.., K], finite: what the gguf package gives, bit for bit.

        Raises:
            ConfigError: nothing packs weights so.
        """
        quantizer = _quantizer_of(self)
        blocks = np.ascontiguousarray(weights, np.float32).reshape(-1, self.block)
        packed = np.empty((len(blocks), self.block_bytes), np.uint8)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(blocks), _GROUP):
                quantizer.pack(blocks[start : start + _GROUP], packed[start : start + _GROUP])
        return packed.view(np.int8).reshape(self.packed(TensorSpec(weights.shape, f32)).shape)

    def unpacked(self, packed: _Array) -> _Array:
        """f32 [.., K] of i8 [.., K / block * block_bytes]: what the gguf package gives, bit for bit."""
        leading, count = packed.shape[:-1], packed.shape[-1] // self.block_bytes
        blocks = np.ascontiguousarray(packed).view(np.uint8).reshape(-1, self.block_bytes)
        weights = np.empty((len(blocks), self.block), np.float32)
        group = _GROUP * BLOCK // self.block
        with np.errstate(invalid="ignore", over="ignore"):  # an infinite scale, and 0
            for start in range(0, len(blocks), group):
                weights[start : start + group] = self.unpacker(blocks[start : start + group])
        return weights.reshape(*leading, count * self.block)


Q8_0: Final = Encoding("q8_0", 32, 34, 8, unpack_q8_0, BYTES)
Q4_0: Final = Encoding("q4_0", 32, 18, 4, unpack_q4_0, NIBBLES)
Q4_K: Final = Encoding("q4_k", 256, 144, 4, unpack_q4_k)
Q6_K: Final = Encoding("q6_k", 256, 210, 6, unpack_q6_k)
ENCODINGS: Final[Mapping[str, Encoding]] = MappingProxyType({each.name: each for each in (Q8_0, Q4_0, Q4_K, Q6_K)})
QUANTIZED: Final = tuple(name for name, each in ENCODINGS.items() if each.quantizer is not None)
"""Names of the encodings that weights can be packed in, and not only be read in."""


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


def _quantizer_of(encoding: Encoding) -> Quantizer:
    """What packs weights in an encoding.

    Raises:
        ConfigError: nothing does.
    """
    if encoding.quantizer is None:
        raise ConfigError(
            f"nothing here quantises weights as {encoding.name}: a GGUF file's that are so are kept, and others can be "
            f"packed as {' or '.join(QUANTIZED)}"
        )
    return encoding.quantizer
