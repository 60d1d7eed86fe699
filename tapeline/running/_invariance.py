"""Measures whether a token's bits are the same in whatever chunk and batch it is computed."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from tapeline.running._slots import BundleSlots, SizedCall
from transformer_core.generation import Prediction

_STEPS: Final = 3  # tokens that are decoded one by one
_FEW: Final = 11  # tokens that go on in a row that is filled already
_PIECE: Final = 5  # tokens of a call that takes more

Arrays = list[np.ndarray]
Decode = Callable[[Sequence[int], Sequence[int], Sequence[int]], Sequence[Prediction]]


def is_invariant(slots: BundleSlots) -> bool:
    """Returns whether all sizes of a bundle's entry points give the same bits: logits, entries of caches, states.

    The same tokens go through every size of ``prefill_row``, in whole calls and in padded ones, and through every size
    of ``decode``, in several rows and places of the batch. They stand at the beginning of a row, or go on from random
    entries: near the beginning, in the middle and at the end. Rows are other ones afterwards.
    """
    return all(_Stretch(slots, start, count).is_invariant() for start, count in _stretches(slots))


def _stretches(slots: BundleSlots) -> Iterator[tuple[int, int]]:
    """Yields first positions and numbers of tokens."""
    yield 0, min(slots.chunks[-1] + _STEPS, slots.capacity)
    few = min(_FEW, slots.capacity)
    for start in sorted({min(_PIECE, slots.capacity - few), slots.capacity // 2, slots.capacity - few} - {0}):
        yield start, min(few, slots.capacity - start)


class _Stretch:
    """Tokens that go on in rows with the same random entries."""

    def __init__(self, slots: BundleSlots, start: int, count: int) -> None:
        random = np.random.default_rng(start)
        self._slots, self._start = slots, start
        self._tokens: list[int] = random.integers(0, slots.vocabulary, count).tolist()
        before = slots.read_row(0, 0, start) if start else []
        self._history = [random.standard_normal(array.shape).astype(array.dtype) for array in before]

    def is_invariant(self) -> bool:
        """Returns whether all calls agree; ends with the first that does not."""
        tokens, steps = self._tokens, self._tokens[:_STEPS]
        return _all_same(self._whole(tokens)) and _all_same(self._stepwise(steps))

    def _whole(self, tokens: Sequence[int]) -> Iterator[Arrays]:
        """Yields what each size of ``prefill_row`` leaves."""
        for entry in reversed(self._slots.prefills):
            yield self._filled(entry, entry.size, tokens)
            if len(tokens) <= _FEW:
                yield self._filled(entry, min(_PIECE, entry.size), tokens)

    def _stepwise(self, tokens: Sequence[int]) -> Iterator[Arrays]:
        """Yields what one call of ``prefill_row`` leaves, and what each size of ``decode`` does in each row."""
        slots = self._slots
        yield self._filled(slots.prefills[-1], len(tokens), tokens)
        rows = range(slots.slots)[::-1]
        for entry in slots.decodes:
            yield from self._decoded(partial(slots.run_decode, entry), rows[: entry.size], tokens)
        yield from self._decoded(slots.run_in_place, rows[:1], tokens)

    def _filled(self, entry: SizedCall, piece: int, tokens: Sequence[int]) -> Arrays:
        self._begin()
        logits = np.zeros(0)
        for at in range(0, len(tokens), piece):
            logits = self._slots.run_prefill(entry, tokens[at : at + piece], 0, self._start + at).logits()
        return [logits, *self._left(0, tokens)]

    def _decoded(self, decode: Decode, rows: Sequence[int], tokens: Sequence[int]) -> Iterator[Arrays]:
        self._begin()
        for row in rows:
            self._slots.copy_row(0, row)
        logits: Arrays = []
        for position, token in enumerate(tokens, self._start):
            predictions = decode(rows, [token] * len(rows), [position] * len(rows))
            logits = [prediction.logits() for prediction in predictions]
        for row, line in zip(rows, logits, strict=True):
            yield [line, *self._left(row, tokens)]

    def _begin(self) -> None:
        """Makes row 0 what it is before the tokens."""
        self._slots.clear_row(0)
        if self._history:
            self._slots.write_row(0, 0, self._history)

    def _left(self, row: int, tokens: Sequence[int]) -> Sequence[np.ndarray]:
        return self._slots.read_row(row, 0, self._start + len(tokens))


def _all_same(calls: Iterator[Arrays]) -> bool:
    expected = [array.tobytes() for array in next(calls)]
    return all([array.tobytes() for array in arrays] == expected for arrays in calls)
