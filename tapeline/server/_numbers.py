"""Bound on the digits of numbers in JSON: a model can write digits until its context ends."""

from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from tapeline.text import Tokenizer

_MOST: Final = {"whole": 16, "fraction": 16, "exponent": 2}  # digits; llama.cpp has the first two
_DIGITS: Final = frozenset(b"0123456789")
_leading: Final[WeakKeyDictionary[Tokenizer, np.ndarray]] = WeakKeyDictionary()


def leading_digits(tokenizer: Tokenizer, vocabulary: int) -> np.ndarray:
    """Returns the number of digits with which each token begins, uint8 [V]; it is computed once for a tokenizer."""
    counts = _leading.get(tokenizer)
    if counts is None or len(counts) != vocabulary:
        counts = np.zeros(vocabulary, np.uint8)
        for token_id in range(vocabulary):
            text = tokenizer.token_bytes(token_id)
            if text[:1].isdigit():
                counts[token_id] = min(255, len(text) - len(text.lstrip(b"0123456789")))
        _leading[tokenizer] = counts
    return counts


class NumberBound:
    """Bound on the numbers of one JSON text: 16 digits before and after the point, and 2 of the exponent.

    Args:
        tokenizer: tokenizer of the model.
        vocabulary: size of the vocabulary, V.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self._tokenizer: Final = tokenizer
        self._counts: Final = leading_digits(tokenizer, vocabulary)
        self._quoted = self._escaped = False
        self._part: str | None = None  # of the number that the text ends in
        self._digits = 0

    def mask(self, out: np.ndarray) -> None:
        """Forbids the tokens that make the number too long, unless only these are allowed."""
        if self._part is None:
            return
        counts = self._counts[: len(out)]
        long = counts > _MOST[self._part] - self._digits
        kept = out[: len(counts)] & ~long
        if kept.any() or out[len(counts) :].any():
            out[: len(counts)] = kept

    def accept(self, token_id: int) -> None:
        """Goes on with a token."""
        for byte in self._tokenizer.token_bytes(token_id):
            self._read(byte)

    def _read(self, byte: int) -> None:
        letter = chr(byte)
        if self._quoted:
            closes = letter == '"' and not self._escaped
            self._escaped = letter == "\\" and not self._escaped
            self._quoted = not closes
        elif byte in _DIGITS:
            self._part = self._part or "whole"
            self._digits += 1
        elif letter == "." and self._part == "whole":
            self._part, self._digits = "fraction", 0
        elif letter in "eE" and self._part in ("whole", "fraction"):
            self._part, self._digits = "exponent", 0
        elif not (letter in "+-" and self._part == "exponent" and self._digits == 0):
            self._part, self._digits = None, 0
            self._quoted = letter == '"'
