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
    """Small integers that scale the parts of a super-block, and their minima after them.

    Attributes:
        at: first byte of the words that ``fields`` index, or of the bytes that are the integers.
        fields: bit fields, joined by or; none if each byte is an integer, or if ``planes`` has the bits.
        planes: bits of the integers, joined by or, as those of weights are described.
        signed: whether they are signed bytes.
        offset: subtracted from them.
    """

    at: int = 0
    fields: tuple[BitField, ...] = ()
    planes: tuple[Plane, ...] = ()
    signed: bool = False
    offset: int = 0


@checked_choices
@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Bytes of a block: weight = d * sub_scale * (integer - offset), less dmin * sub_minimum if it has minima.

    With a table, ``table[integer]`` takes the place of the integer.

    Attributes:
        size: weights of a block.
        bytes: bytes of a block.
        planes: bits of the integers, joined by or; one plane of 8 bits holds signed integers.
        offset: subtracted from the stored integers.
        scale: first byte of d, an f16.
        scaled: consecutive weights that share a scale.
        minimum: first byte of dmin, an f16; None without minima.
        adds_minimum: whether minima are added, not subtracted.
        sub_scales: scales of the parts, then their minima; None if d is the only scale.
        table: value of each stored integer; None if integers stand for themselves.
        exponent: whether d is a byte e, for 2**(e - 128), and not an f16.
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
    table: tuple[int, ...] | None = None
    exponent: bool = False

    @property
    def halves(self) -> tuple[int, ...]:
        """First bytes of the f16s."""
        places = () if self.exponent else (self.scale,)
        return places if self.minimum is None else (*places, self.minimum)

    @property
    def parts(self) -> int:
        """Number of parts with a scale of their own."""
        return self.size // self.scaled


def unpacked_blocks(layout: BlockLayout, blocks: _Array) -> _Array:
    """Returns the weights, f32 [n, size], of blocks u8 [n, bytes].

    >>> q4_0 = BlockLayout(32, 18, (Plane(2, 4, 16),), offset=8)
    >>> unpacked_blocks(q4_0, np.uint8([[0, 0x3C, *range(16)]]))[0, 7:18].tolist()  # d = 1; low bits first
    [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0, -8.0]
    """
    integers = _values(layout, blocks)
    scale = _exponent(blocks, layout.scale) if layout.exponent else _half(blocks, layout.scale)
    if layout.sub_scales is None:
        weights = integers * scale
        if layout.minimum is not None:
            minimum = _half(blocks, layout.minimum)
            weights += minimum if layout.adds_minimum else -minimum
        return weights
    parts = layout.parts
    numbers = _sub_scales(layout, layout.sub_scales, blocks)
    weights = integers.reshape(-1, parts, layout.scaled) * (scale * numbers[:, :parts])[..., np.newaxis]
    if layout.minimum is not None:
        weights -= (_half(blocks, layout.minimum) * numbers[:, parts:])[..., np.newaxis]
    return weights.reshape(-1, layout.size)


def _values(layout: BlockLayout, blocks: _Array) -> _Array:
    """Returns the values of the integers, f32 [n, size]."""
    stored = _integers(layout.planes, layout.size, blocks)
    if layout.table is not None:
        return np.array(layout.table, np.float32)[stored]
    values = (stored.view(np.int8) if layout.planes[0].bits == 8 else stored).astype(np.float32)
    if layout.offset:
        values -= layout.offset
    return values


def _integers(planes: tuple[Plane, ...], size: int, blocks: _Array) -> _Array:
    """Returns the integers as they are stored, u8 [n, size]."""
    first, *others = planes
    integers = _plane(first, size, blocks)
    for plane in others:
        integers |= _plane(plane, size, blocks) << plane.up
    return integers


def _plane(plane: Plane, size: int, blocks: _Array) -> _Array:
    """Returns the bits of a plane, u8 [n, size]."""
    stored = blocks[:, plane.at : plane.at + size * plane.bits // 8]
    if plane.bits == 8:
        return stored
    stored = stored.reshape(-1, size // plane.run, 1, plane.span)
    parts = [stored >> shift & (1 << plane.bits) - 1 for shift in range(0, 8 - plane.bits, plane.bits)]
    return np.concatenate([*parts, stored >> 8 - plane.bits], axis=2).reshape(-1, size)


def _sub_scales(layout: BlockLayout, scales: SubScales, blocks: _Array) -> _Array:
    """Returns the small integers, f32 [n, parts], or [n, 2 * parts] with minima."""
    count = layout.parts * (1 if layout.minimum is None else 2)
    if scales.planes:
        stored = _integers(scales.planes, count, blocks)
    else:
        stored = blocks[:, scales.at : scales.at + 4 * _WORD]
        if scales.fields:
            words = np.ascontiguousarray(stored).view("<u4")
            shifted = [
                words[:, field.words] >> np.array(field.right, np.uint32) & np.array(field.masks, np.uint32)
                for field in scales.fields
            ]
            stored = np.bitwise_or.reduce(shifted).view(np.uint8)
    numbers = (stored.view(np.int8) if scales.signed else stored).astype(np.float32)
    if scales.offset:
        numbers -= scales.offset
    return numbers


def _half(blocks: _Array, place: int) -> _Array:
    """Returns the f16 that starts at this byte, as f32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, place : place + 2]).view(np.float16).astype(np.float32)


def _exponent(blocks: _Array, place: int) -> _Array:
    """Returns half of the power of two that an E8M0 byte says (OCP Microscaling Formats 1.0), f32 [n, 1]."""
    return np.ldexp(np.float32(1), blocks[:, place : place + 1].astype(np.int32) - 128)
