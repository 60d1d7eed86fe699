"""Integers of a few bits: stored in words of 32, and in GGUF's blocks."""

from typing import Any, Final

import numpy as np

from lang_core import BLOCK, LAYOUTS, BlockLayout

_Array = np.ndarray[Any, Any]
WORD: Final = 32

# Encodings whose weight is an f16 scale times an integer, by rising size, with the integers that each can hold.
_RANGES: Final = {"q4_0": (-8, 7), "q5_0": (-16, 15), "q8_0": (-128, 127)}


def unpacked_bits(words: _Array, bits: int) -> _Array:
    """Returns the integers of rows of words [.., W] as u8 [.., 32 W / bits].

    Lowest bits come first; an integer may begin in one word and end in the next.

    >>> unpacked_bits(np.uint32([[0x76543210]]), 4).tolist()
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    >>> unpacked_bits(np.uint32([[0b10_101_100_011_010_001_000_111_110_101_100, 0, 0]]), 3)[0, 8:11].tolist()
    [4, 5, 2]
    """
    stored = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return stored
    if 8 % bits == 0:
        mask = (1 << bits) - 1
        integers = np.stack([stored >> shift & mask for shift in range(0, 8, bits)], axis=-1)
        return integers.reshape(*stored.shape[:-1], -1)
    return _straddling(words, bits)[..., : words.shape[-1] * WORD // bits]


def _straddling(words: _Array, bits: int) -> _Array:
    """Returns integers that may begin in one word and end in the next: 32 of them fill as many words as they have bits.

    The last words are filled up with zeros.
    """
    missing = -words.shape[-1] % bits
    filled = np.pad(words, [(0, 0)] * (words.ndim - 1) + [(0, missing)]).reshape(*words.shape[:-1], -1, bits)
    integers = np.empty((*filled.shape[:-1], WORD), np.uint8)
    for place in range(WORD):
        word, shift = divmod(place * bits, WORD)
        value = filled[..., word] >> np.uint32(shift)
        if shift + bits > WORD:
            value |= filled[..., word + 1] << np.uint32(WORD - shift)
        integers[..., place] = value & np.uint32((1 << bits) - 1)
    return integers.reshape(*words.shape[:-1], -1)


def word_count(integers: int, bits: int) -> int:
    """Returns the number of words that hold so many integers."""
    return -(-integers * bits // WORD)


def columns_between(words: _Array, bits: int, start: int, stop: int) -> _Array:
    """Returns the integers ``start`` to ``stop`` of each row of words [R, W], as u8 [R, stop - start]."""
    first, last = start // WORD * bits, -(-stop // WORD) * bits
    skipped = start // WORD * WORD
    return unpacked_bits(words[:, first:last], bits)[:, start - skipped : stop - skipped]


def smallest_encoding(least: int, most: int) -> str | None:
    """Returns the smallest encoding that holds these integers; None if none does.

    >>> smallest_encoding(-15, 15), smallest_encoding(-255, 255)
    ('q5_0', None)
    """
    return next((name for name, (low, high) in _RANGES.items() if low <= least and most <= high), None)


def are_halves(scales: _Array) -> bool:
    """Returns whether f16s hold these f32s exactly."""
    with np.errstate(over="ignore"):
        return bool(np.array_equal(scales.astype(np.float16).astype(np.float32), scales))


def integer_blocks(encoding: str, integers: _Array, scales: _Array) -> _Array:
    """Packs integers [rows, K] and the scales of their blocks, f32 [rows, K / 32], as u8 [rows, bytes of a row].

    >>> integer_blocks("q4_0", np.arange(-16, 16).reshape(1, 32) // 2, np.ones((1, 1), np.float32)).tolist()[0][:5]
    [0, 60, 128, 128, 145]
    """
    layout = LAYOUTS[encoding]
    rows, columns = integers.shape
    blocks = np.empty((rows * columns // BLOCK, layout.bytes), np.uint8)
    blocks[:, layout.scale : layout.scale + 2] = scales.astype(np.float16).reshape(-1, 1).view(np.uint8)
    stored = (integers + layout.offset).astype(np.int16).astype(np.uint8)
    store_integers(layout, stored.reshape(-1, BLOCK), blocks)
    return blocks.reshape(rows, -1)


def store_integers(layout: BlockLayout, integers: _Array, blocks: _Array) -> None:
    """Writes a layout's stored integers u8 [n, size] into the planes of its blocks u8 [n, bytes]."""
    for plane in layout.planes:
        bits = (integers >> plane.up & ((1 << plane.bits) - 1)).reshape(
            -1, layout.size // plane.run, 8 // plane.bits, plane.span
        )
        stored = bits[:, :, 0]
        for place in range(1, bits.shape[2]):
            stored = stored | bits[:, :, place] << place * plane.bits
        count = layout.size * plane.bits // 8
        blocks[:, plane.at : plane.at + count] = stored.reshape(-1, count)
