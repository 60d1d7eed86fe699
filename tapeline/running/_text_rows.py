"""Rows of tokens that texts of different lengths share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tapeline.text import EncodedText
from transformer_core import TEXT_ALIGNMENT

_CALL: Final = 8  # tokens that take as long as the rest of a call


@dataclass(frozen=True, slots=True)
class TextRow:
    """Entry point that takes several texts in a row.

    Attributes:
        name: name of the entry point.
        tokens: number of tokens of the row, T.
        keys: number of places of keys, S: those of a text begin at a multiple of ``TEXT_ALIGNMENT``.
    """

    name: str
    tokens: int
    keys: int

    def arrays(self, texts: Sequence[EncodedText], skipped: int) -> dict[str, np.ndarray]:
        """Returns the arguments of a call by their names.

        Args:
            texts: tokens of texts that fit.
            skipped: number of tokens at the beginning of each that are not pooled.
        """
        ids, types, positions, pooled = (np.zeros((1, self.tokens), np.int32) for _ in range(4))
        numbers, places = np.full((1, self.tokens), -1, np.int32), np.full((1, self.keys), -1, np.int32)
        begin = first = 0
        for number, text in enumerate(texts):
            count = len(text.ids)
            row = slice(begin, begin + count)
            ids[0, row], types[0, row], numbers[0, row] = text.ids, text.types, number
            positions[0, row] = np.arange(count)
            pooled[0, row] = positions[0, row] >= skipped
            places[0, first : first + count] = np.arange(begin, begin + count)
            begin, first = begin + count, first + _aligned(count)
        return {
            "token_ids": ids,
            "text_ids": numbers,
            "positions": positions,
            "key_places": places,
            "token_type_ids": types,
            "pooling_mask": pooled,
        }


@dataclass(frozen=True, slots=True)
class TextCall:
    """Call of an entry point on some texts.

    Attributes:
        row: row that the texts share; None for ``forward``, in the shortest length that fits.
        texts: numbers of the texts.
    """

    row: TextRow | None
    texts: tuple[int, ...]


def plan_calls(lengths: Sequence[int], alone: Sequence[int], batch: int, rows: Sequence[TextRow]) -> list[TextCall]:
    """Returns calls for texts, with little padding.

    Args:
        lengths: number of tokens of each text.
        alone: T of ``forward``, ascending; the last one is that of the longest text.
        batch: number of texts that a call of ``forward`` takes.
        rows: rows that texts can share, by ascending tokens; there are none unless ``batch`` is 1.

    >>> rows = [TextRow("packed_64", 64, 96)]
    >>> [call.texts for call in plan_calls([9, 40, 70, 15, 33], [32, 128], 1, rows)]
    [(1, 3, 0), (4,), (2,)]
    """
    texts = list(range(len(lengths)))
    calls, rest = _shared(texts, lengths, alone, rows)
    rest.sort(key=lengths.__getitem__)
    return [*calls, *(TextCall(None, tuple(rest[start : start + batch])) for start in range(0, len(rest), batch))]


def _shared(
    texts: Sequence[int], lengths: Sequence[int], alone: Sequence[int], rows: Sequence[TextRow]
) -> tuple[list[TextCall], list[int]]:
    """Returns calls of the rows and of smaller ones, and the texts that are faster alone."""
    if not rows:
        return [], list(texts)
    row = rows[-1]
    calls, rest = list[TextCall](), [text for text in texts if lengths[text] > row.tokens]
    for chosen in shared_rows([text for text in texts if lengths[text] <= row.tokens], lengths, row):
        smaller, single = _shared(chosen, lengths, alone, rows[:-1])
        cost = sum(_cost(call.row) for call in smaller)
        cost += sum(next(size for size in alone if size >= lengths[text]) + _CALL for text in single)
        if _cost(row) < cost:
            calls.append(TextCall(row, tuple(chosen)))
        else:
            calls, rest = [*calls, *smaller], [*rest, *single]
    return calls, rest


def _cost(row: TextRow | None) -> int:
    return _CALL + (0 if row is None else row.tokens)


def shared_rows(texts: Sequence[int], lengths: Sequence[int], row: TextRow) -> list[list[int]]:
    """Distributes texts over rows: the longest first, each into the fullest row that has place.

    Args:
        texts: numbers of the texts.
        lengths: number of tokens of each text; those of ``texts`` have at most as many as a row.
        row: the row.

    >>> shared_rows([0, 1, 2, 3], [5, 40, 17, 30], TextRow("packed_64", 64, 96))
    [[1, 2, 0], [3]]
    """
    rows: list[list[int]] = []
    keys: list[int] = []
    free: list[list[int]] = [[] for _ in range(row.tokens + 1)]  # rows by the tokens that they have left
    for text in sorted(texts, key=lambda text: (-lengths[text], text)):
        size, places = lengths[text], _aligned(lengths[text])
        fits = (left for left in range(size, len(free)) if free[left] and keys[free[left][-1]] >= places)
        left = next(fits, None)
        if left is None:
            number, left = len(rows), row.tokens
            rows.append([])
            keys.append(row.keys)
        else:
            number = free[left].pop()
        rows[number].append(text)
        keys[number] -= places
        free[left - size].append(number)
    return rows


def _aligned(tokens: int) -> int:
    """Returns the places that the keys of a text take, up to the start of the next one's."""
    return -(-tokens // TEXT_ALIGNMENT) * TEXT_ALIGNMENT
