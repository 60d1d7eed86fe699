"""Layouts of packed blocks as data, and their reference reading in NumPy, each step rounded as ggml's is.

One description serves the eager unpacking here and the CPU kernels (run_iree/kernels/README.md).
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lang_core._choices import checked_choices

_WORD: Final = 4  # bytes that ``BitField`` moves together

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Plane:
    """Bits of a block's integers that are stored together.

    ``span`` bytes hold ``span`` consecutive integers in their lowest bits, the next ``span`` integers in the bits
    above, and so on until the bytes are full; then the next ``span`` bytes follow.

    Attributes:
        at: first byte in the block.
        bits: bits of each integer that are here: 1, 2, 4 or 8.
        span: bytes of a run.
        up: position of these bits in the integer.
    """

    at: int
    bits: int
    span: int
    up: int = 0

    @property
    def run(self) -> int:
        """Consecutive integers that the bytes of one run hold."""
        return self.span * 8 // self.bits


@dataclass(frozen=True, slots=True)
class BitField:
    """Bits of sub-block scales, four bytes (a word) at a time.

    Attributes:
        words: for each four results, the index of the word that holds their bits.
        right: for each four results, by how many bits the word is shifted right.
        mask: for each four results, the bits that are kept of each byte.
    """

    words: tuple[int, ...]
    right: tuple[int, ...]
    mask: tuple[int, ...]

    @property
    def masks(self) -> tuple[int, ...]:
        """The masks of whole words."""
        return tuple(0x01010101 * mask for mask in self.mask)


@checked_choices
@dataclass(frozen=True, slots=True)
class SubScales:
    """Small integers that scale the parts of a super-block.

    Attributes:
        at: first byte of the words that ``fields`` index.
        fields: bit fields, joined by or; none where each byte is a scale.
        signed: whether they are signed bytes.
    """

    at: int
    fields: tuple[BitField, ...] = ()
    signed: bool = False


@checked_choices
@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Bytes of a block: weight = d * sub_scale * (integer - offset), less dmin * sub_minimum where it has minima.

    Attributes:
        size: weights of a block.
        bytes: bytes of a block.
        planes: bits of the integers, joined by or; one plane of 8 bits holds signed integers.
        offset: subtracted from the stored integers.
        scale: first byte of d, an f16.
        scaled: consecutive weights that share a scale.
        minimum: first byte of dmin, an f16; None without minima.
        adds_minimum: whether minima are added, not subtracted.
        sub_scales: scales of the parts, then their minima; None where d is the only scale.
    """

    size: int
    bytes: int
    planes: tuple[Plane, ...]
    offset: int = 0
    scale: int = 0
    scaled: int = 32
    minimum: int | None = None
    adds_minimum: bool = False
    sub_scales: SubScales | None = None

    @property
    def halves(self) -> tuple[int, ...]:
        """First bytes of the f16s."""
        return (self.scale,) if self.minimum is None else (self.scale, self.minimum)


Q8_0: Final = BlockLayout(32, 34, (Plane(2, 8, 32),))
Q4_0: Final = BlockLayout(32, 18, (Plane(2, 4, 16),), offset=8)
# ggml's get_scale_min_k4: six bits each, of eight scales, then of eight minima. Words 1 and 2 hold the first four of
# each and the upper bits of the others, whose lower bits are in word 3.
SIX_BITS: Final = SubScales(
    0,
    (
        BitField((1, 3, 2, 3), (0, 0, 0, 4), (0x3F, 0x0F, 0x3F, 0x0F)),
        BitField((1, 1, 2, 2), (2, 2, 2, 2), (0, 0x30, 0, 0x30)),
    ),
)
Q4_K: Final = BlockLayout(256, 144, (Plane(16, 4, 32),), minimum=2, sub_scales=SIX_BITS)
Q6_K: Final = BlockLayout(
    256,
    210,
    (Plane(0, 4, 64), Plane(128, 2, 32, up=4)),
    offset=32,
    scale=208,
    scaled=16,
    sub_scales=SubScales(192, signed=True),
)


def unpacked_blocks(layout: BlockLayout, blocks: _Array) -> _Array:
    """Returns the weights, f32 [n, size], of blocks u8 [n, bytes].

    >>> unpacked_blocks(Q4_0, np.uint8([[0, 0x3C, *range(16)]]))[0, 7:18].tolist()  # d = 1; low bits first
    [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0, -8.0]
    """
    integers = _integers(layout, blocks).astype(np.float32)
    if layout.offset:
        integers -= layout.offset
    scale = _half(blocks, layout.scale)
    if layout.sub_scales is None:
        weights = integers * scale
        if layout.minimum is not None:
            minimum = _half(blocks, layout.minimum)
            weights += minimum if layout.adds_minimum else -minimum
        return weights
    parts = layout.size // layout.scaled
    numbers = _sub_scales(layout.sub_scales, blocks).astype(np.float32)
    weights = integers.reshape(-1, parts, layout.scaled) * (scale * numbers[:, :parts])[..., np.newaxis]
    if layout.minimum is not None:
        weights -= (_half(blocks, layout.minimum) * numbers[:, parts:])[..., np.newaxis]
    return weights.reshape(-1, layout.size)


def _integers(layout: BlockLayout, blocks: _Array) -> _Array:
    """Returns the integers as they are stored, [n, size]."""
    first, *others = layout.planes
    if first.bits == 8:
        return blocks[:, first.at : first.at + layout.size].view(np.int8)
    integers = _plane(first, layout.size, blocks)
    for plane in others:
        integers |= _plane(plane, layout.size, blocks) << plane.up
    return integers


def _plane(plane: Plane, size: int, blocks: _Array) -> _Array:
    """Returns the bits of a plane, u8 [n, size]."""
    stored = blocks[:, plane.at : plane.at + size * plane.bits // 8].reshape(-1, size // plane.run, 1, plane.span)
    parts = [stored >> shift & (1 << plane.bits) - 1 for shift in range(0, 8 - plane.bits, plane.bits)]
    return np.concatenate([*parts, stored >> 8 - plane.bits], axis=2).reshape(-1, size)


def _sub_scales(scales: SubScales, blocks: _Array) -> _Array:
    """Returns the small integers, [n, 16]."""
    stored = blocks[:, scales.at : scales.at + 4 * _WORD]
    if scales.fields:
        words = np.ascontiguousarray(stored).view("<u4")
        shifted = [
            words[:, field.words] >> np.array(field.right, np.uint32) & np.array(field.masks, np.uint32)
            for field in scales.fields
        ]
        stored = np.bitwise_or.reduce(shifted).view(np.uint8)
    return stored.view(np.int8) if scales.signed else stored


def _half(blocks: _Array, place: int) -> _Array:
    """Returns the f16 whose first byte has this place, as f32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, place : place + 2]).view(np.float16).astype(np.float32)
