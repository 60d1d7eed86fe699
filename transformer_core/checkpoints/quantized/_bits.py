"""Integers of a few bits, stored in words of 32."""

from typing import Any, Final

import numpy as np

_Array = np.ndarray[Any, Any]
WORD: Final = 32


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
    count = words.shape[-1] * WORD // bits
    single = np.unpackbits(stored, axis=-1, bitorder="little", count=count * bits)
    weights = (1 << np.arange(bits)).astype(np.uint8)
    return (single.reshape(*stored.shape[:-1], count, bits) * weights).sum(axis=-1, dtype=np.uint8)


def word_count(integers: int, bits: int) -> int:
    """Returns the number of words that hold so many integers."""
    return -(-integers * bits // WORD)


def columns_between(words: _Array, bits: int, start: int, stop: int) -> _Array:
    """Returns the integers ``start`` to ``stop`` of each row of words [R, W], as u8 [R, stop - start]."""
    first, last = start // WORD * bits, -(-stop // WORD) * bits
    skipped = start // WORD * WORD
    return unpacked_bits(words[:, first:last], bits)[:, start - skipped : stop - skipped]
