"""Block-quantised weights: GGUF's layouts, byte for byte.

A packed matrix [N, K] is an i8 array [N, K / block * bytes of a block]: block after block along K. The layouts are
those of ggml (``ggml-common.h``): blocks of 32, or super-blocks of 256 with a scale for each part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from lang_core._dtypes import f32, i8
from lang_core._errors import ConfigError, any_of, near_names, some_of
from lang_core._formats import LAYOUTS
from lang_core._layouts import BlockLayout, unpacked_blocks
from lang_core._plugins import load_plugins
from lang_core._quantizers import QUANTIZERS, Quantizer
from lang_core._searches import SEARCHES
from lang_core._spec import TensorSpec

BLOCK: Final = 32  # elements of a block of the activations that packed weights are multiplied with
"""Elements of a block of the activations that packed weights are multiplied with."""
_GROUP: Final = 4096  # blocks of 32 that are packed or unpacked at a time, so that the work stays in a core's cache

Activations = Literal["exact", "q8"]
"""How products with packed weights take x: as it is, or rounded to 8 bits in blocks."""
ACTIVATION_BITS: Final[Mapping[Activations, int]] = MappingProxyType({"exact": 16, "q8": 8})
"""Bits of x's integers in a lowered product."""

_HALF_EXPONENT: Final = 0x7C  # of an f16's upper byte, all set for infinities and NaN
_NO_EXPONENT: Final = 0xFF  # E8M0's NaN

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Encoding:
    """Block format of packed weights.

    Attributes:
        name: GGUF's name, in lower case.
        block: weights of a block, a multiple of 32.
        block_bytes: bytes of a block, scales included.
        bits: bits of a weight's integer.
        layout: description of a block's bytes.
        quantizer: function that packs weights; None if they can only be read.
    """

    name: str
    block: int
    block_bytes: int
    bits: int
    layout: BlockLayout = field(repr=False)
    quantizer: Quantizer | None = field(default=None, repr=False, compare=False)

    def packed(self, spec: TensorSpec) -> TensorSpec:
        """Returns the spec of the packed array: i8 [.., K / block * block_bytes].

        Raises:
            ConfigError: the last dimension is not a multiple of the block.
        """
        if not self.takes(spec.shape):
            raise ConfigError(
                f"{spec!r} cannot be packed as {self.name}: blocks of {self.block} go along the last axis, which must "
                f"be a multiple of {self.block}"
            )
        return TensorSpec((*spec.shape[:-1], spec.shape[-1] // self.block * self.block_bytes), i8)

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Returns whether a tensor of this shape can be packed."""
        return bool(shape) and shape[-1] > 0 and shape[-1] % self.block == 0

    def columns(self, packed_columns: int) -> int | None:
        """Returns K for rows of this many bytes; None if they are not whole blocks."""
        blocks, rest = divmod(packed_columns, self.block_bytes)
        return None if rest else blocks * self.block

    def pack(self, weights: _Array, importance: _Array | None = None) -> _Array:
        """Packs finite weights f32 [.., K] into i8 [.., K / block * block_bytes].

        Where the gguf package has a quantizer the result is the package's, bit for bit, unless importance is given.

        Args:
            weights: weights.
            importance: mean squares of the inputs that the columns are multiplied with, f32 [K]: errors are weighed by
                them. Encodings without a search ignore them.

        Raises:
            ConfigError: this encoding lacks a quantizer.
        """
        quantizer = _quantizer_of(self)
        blocks = np.ascontiguousarray(weights, np.float32).reshape(-1, self.block)
        packed = np.empty((len(blocks), self.block_bytes), np.uint8)
        parts = None if importance is None else np.ascontiguousarray(importance, np.float32).reshape(-1, self.block)
        group = max(1, _GROUP * BLOCK // self.block)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for start in range(0, len(blocks), group):
                chosen, written = blocks[start : start + group], packed[start : start + group]
                if parts is None or quantizer.weighed is None:
                    quantizer.pack(chosen, written)
                else:
                    quantizer.weighed(chosen, written, parts[np.arange(start, start + len(chosen)) % len(parts)])
        return packed.view(np.int8).reshape(self.packed(TensorSpec(weights.shape, f32)).shape)

    def unpacked(self, packed: _Array) -> _Array:
        """Unpacks i8 [.., K / block * block_bytes] into f32 [.., K], bit for bit as the gguf package does."""
        leading, count = packed.shape[:-1], packed.shape[-1] // self.block_bytes
        blocks = np.ascontiguousarray(packed).view(np.uint8).reshape(-1, self.block_bytes)
        weights = np.empty((len(blocks), self.block), np.float32)
        group = _GROUP * BLOCK // self.block
        with np.errstate(invalid="ignore", over="ignore"):  # an infinite scale times 0
            for start in range(0, len(blocks), group):
                weights[start : start + group] = unpacked_blocks(self.layout, blocks[start : start + group])
        return weights.reshape(*leading, count * self.block)

    def nonfinite(self, packed: _Array) -> _Array:
        """Returns which blocks have a scale or a minimum that is NaN, bool [.., K / block], of i8 [.., bytes]."""
        blocks = packed.view(np.uint8).reshape(*packed.shape[:-1], -1, self.block_bytes)
        if self.layout.exponent:
            return blocks[..., self.layout.scale] == _NO_EXPONENT
        damaged = np.zeros(blocks.shape[:-1], np.bool_)
        for place in self.layout.halves:
            damaged |= blocks[..., place + 1] & _HALF_EXPONENT == _HALF_EXPONENT  # the upper byte has the exponent
        return damaged


def _encoding(name: str, layout: BlockLayout, quantizer: Quantizer | None) -> Encoding:
    bits = sum(plane.bits for plane in layout.planes)
    return Encoding(name, layout.size, layout.bytes, bits, layout, quantizer)


_ENCODINGS: Final[dict[str, Encoding]] = {}
ENCODINGS: Final[Mapping[str, Encoding]] = MappingProxyType(_ENCODINGS)
"""Encodings by name: GGUF's, and those that were registered."""


def register_encoding(name: str, layout: BlockLayout, quantizer: Quantizer | None = None) -> Encoding:
    """Registers and returns an encoding; other packages may register further ones.

    Args:
        name: its name, in lower case.
        layout: description of a block's bytes; every context, lowering and kernel reads weights by it.
        quantizer: function that packs weights; None if they can only be read.

    Raises:
        ConfigError: the name is taken.
    """
    if name in _ENCODINGS:
        raise ConfigError(f"encoding {name!r} is registered already: a name stands for one layout")
    encoding = _ENCODINGS[name] = _encoding(name, layout, quantizer)
    return encoding


for _name, _layout in LAYOUTS.items():
    register_encoding(_name, _layout, SEARCHES.get(_name, QUANTIZERS.get(_name)))


def quantizable() -> tuple[str, ...]:
    """Returns the names of the encodings that have a quantizer; weights of the others can only be read."""
    return tuple(encoding.name for encoding in ENCODINGS.values() if encoding.quantizer is not None)


def encoding_named(name: str) -> Encoding:
    """Returns the encoding of a name.

    Raises:
        ConfigError: the name is unknown.
        PluginError: an installed plugin cannot be loaded.

    >>> encoding_named("q4_0").packed(TensorSpec((5, 64), "bf16"))
    i8[5,36]
    """
    if name not in ENCODINGS:
        load_plugins()
    encoding = ENCODINGS.get(name)
    if encoding is None:
        raise ConfigError(
            f"unknown encoding {name!r}: known are {some_of(name, ENCODINGS, 5)}{near_names(name, ENCODINGS)}"
        )
    return encoding


def _quantizer_of(encoding: Encoding) -> Quantizer:
    """Returns the quantizer of an encoding.

    Raises:
        ConfigError: it has none.
    """
    if encoding.quantizer is None:
        raise ConfigError(
            f"nothing here quantises weights as {encoding.name}: a GGUF file's that are so are kept, and others can be "
            f"packed as {any_of(quantizable())}"
        )
    return encoding.quantizer
