"""Measures among which calls of a bundle with slots a token's bits are the same."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import numpy as np

from generation import Prediction
from lang_core import Encoding
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.runners._adapters import AdapterTables
from tapeline.runners._invariance import Invariance, known_invariance
from tapeline.runners._sized_calls import SizedCall
from tapeline.runners._slots import SLOTS, BundleSlots
from transformer_core.checkpoints import Factors

_STEPS: Final = 3  # tokens that are decoded one by one
_FEW: Final = 11  # tokens that go on in a row that is filled already
_PIECE: Final = 5  # tokens of a call that takes more

Arrays = list[np.ndarray]
Decode = Callable[[Sequence[int], Sequence[int], Sequence[int]], Sequence[Prediction]]


def open_slots(bundle: Bundle, session: Session) -> BundleSlots:
    """Makes empty caches; measures invariance first if the bundle does not say all of the session's target.

    Raises:
        InputError: the bundle was exported without slots.
    """
    if SLOTS in bundle.config.model and known_invariance(bundle.config.model, session.target) is None:
        return BundleSlots(bundle, session, invariance=measured_invariance(bundle, session))
    return BundleSlots(bundle, session)


def measured_invariance(bundle: Bundle, session: Session) -> Invariance:
    """Returns among which calls of a bundle's entry points a token's bits are the same.

    Raises:
        InputError: the bundle was exported without slots.
    """
    slots = BundleSlots(bundle, session)
    if all_calls_agree(slots):
        return Invariance.CALLS
    return Invariance.ROWS if all_rows_agree(slots) else Invariance.NONE


def all_rows_agree(slots: BundleSlots) -> bool:
    """Returns whether all rows of a step give the same bits: logits, entries of caches, states.

    The same tokens go through steps of all rows, at the beginning and after random entries.
    """
    starts = (0, (slots.capacity - min(_STEPS, slots.capacity)) // 2)
    return all(_all_same(_Stretch(slots, start, _STEPS).rows()) for start in starts)


def all_calls_agree(slots: BundleSlots) -> bool:
    """Returns whether all sizes of the entry points give the same bits: logits, entries of caches, states.

    The same tokens go through every size of ``prefill_row``, in whole calls and in padded ones, and through every size
    of ``decode``, in several rows and places of the batch, and ``verify_row`` if it can verify drafts. They stand at
    the beginning of a row, or go on from random entries: near the beginning, in the middle and at the end. If a bundle
    takes images, text goes through the calls with embeddings too, and so do embeddings. If it takes
    adapters, rows with one do the same.
    """
    last = slots.capacity - min(_FEW, slots.capacity)
    whole = slots.chunks[-1] + _STEPS
    seeing = [(start, count, method) for start, count in ((0, whole), (last // 2, _FEW)) for method in _SEEING]
    calls = [
        (0, whole, _Stretch.pieces),
        (0, _STEPS, _Stretch.steps),
        *((start, _FEW, _Stretch.pieces) for start in sorted({min(_PIECE, last), last // 2, last})),
        (last // 2, _FEW, _Stretch.padded),
        (last, _FEW, _Stretch.steps),
        *(seeing if slots.seeing else ()),
        *((start, _FEW, _Stretch.verifies) for start in (0, last // 2, last) if slots.verify_tokens),
    ]
    if not all(_all_same(method(_Stretch(slots, start, count))) for start, count, method in calls):
        return False
    if slots.adapters is None:
        return True
    adapted = [call for call in calls if call[2] not in _SEEING]
    with _random_adapter(slots, slots.adapters):
        return all(_all_same(method(_Stretch(slots, start, count, adapter=1))) for start, count, method in adapted)


class _Stretch:
    """Tokens that go on in rows with the same random entries.

    Args:
        slots: rows of caches.
        start: position of the first token.
        count: number of tokens, if so many fit.
        adapter: adapter of the rows; 0 for none.
    """

    def __init__(self, slots: BundleSlots, start: int, count: int, adapter: int = 0) -> None:
        self._adapter = adapter
        random = np.random.default_rng(start)
        self._slots, self._start = slots, start
        self._tokens: list[int] = random.integers(0, slots.vocabulary, min(count, slots.capacity - start)).tolist()
        before = slots.read_row(0, 0, start) if start else []
        self._history = [_random_entries(random, array, slots.kv_cache) for array in before]

    def pieces(self) -> Iterator[Arrays]:
        """Yields the row after each size of ``prefill_row``, in calls as large as it takes."""
        for entry in reversed(self._slots.prefills):
            yield self._filled(entry, entry.size, self._tokens)

    def padded(self) -> Iterator[Arrays]:
        """Yields the row after each size of ``prefill_row``, in calls of few tokens."""
        for entry in self._slots.prefills:
            yield self._filled(entry, min(_PIECE, entry.size), self._tokens)

    def steps(self) -> Iterator[Arrays]:
        """Yields the row after one call of ``prefill_row``, and after each size of ``decode`` in each row."""
        slots, tokens = self._slots, self._tokens[:_STEPS]
        yield self._filled(slots.prefills[0], len(tokens), tokens)
        rows = range(slots.slots)[::-1]
        for entry in slots.decodes:
            yield from self._decoded(partial(slots.run_decode, entry), rows[: entry.size], tokens)
        yield from self._decoded(slots.run_in_place, rows[:1], tokens)

    def rows(self) -> Iterator[Arrays]:
        """Yields each row after steps of all rows."""
        yield from self._decoded(self._slots.run_in_place, range(self._slots.slots), self._tokens)

    def verifies(self) -> Iterator[Arrays]:
        """Yields the results of tokens one by one, and in calls of ``verify_row``, whole and padded."""
        slots, entry = self._slots, self._slots.decodes[0]
        yield self._verified(lambda tokens, position: slots.run_decode(entry, [0], tokens, [position]), 1)
        for piece in (slots.verify_tokens, slots.verify_tokens // 2 + 1):
            yield self._verified(lambda tokens, position: slots.verify_row(tokens, 0, position), piece)

    def _verified(self, verify: Callable[[Sequence[int], int], Sequence[Prediction]], piece: int) -> Arrays:
        self._begin()
        logits: Arrays = []
        for at in range(0, len(self._tokens), piece):
            predictions = verify(self._tokens[at : at + piece], self._start + at)
            logits += [prediction.logits() for prediction in predictions]
        return [*logits, *self._left(0, self._tokens)]

    def text(self) -> Iterator[Arrays]:
        """Yields the row after text in ``prefill_row``, and in each call with embeddings."""
        slots = self._slots
        tokens = [0 if token == slots.image_token else token for token in self._tokens]
        yield self._filled(slots.prefills[-1], slots.chunks[-1], tokens)
        for entry in slots.seeing:
            yield self._filled(entry, entry.size, tokens, np.ones((len(tokens), slots.hidden), np.float32))

    def pictures(self) -> Iterator[Arrays]:
        """Yields the row after text and images in each call with embeddings, whole and padded."""
        slots, count = self._slots, len(self._tokens)
        apart = 2 if slots.whole_pictures else 3  # image tokens side by side may see each other
        tokens = [slots.image_token or 0 if place % apart else token for place, token in enumerate(self._tokens)]
        embeddings = np.random.default_rng(count).standard_normal((count, slots.hidden)).astype(np.float32)
        for entry in reversed(slots.seeing):
            yield self._filled(entry, entry.size, tokens, embeddings)
            yield self._filled(entry, min(_PIECE, entry.size), tokens, embeddings)

    def _filled(
        self, entry: SizedCall, piece: int, tokens: Sequence[int], embeddings: np.ndarray | None = None
    ) -> Arrays:
        self._begin()
        logits = np.zeros(0)
        for at in range(0, len(tokens), piece):
            part, start = slice(at, at + piece), self._start + at
            given = None if embeddings is None else embeddings[part]
            logits = self._slots.run_prefill(entry, tokens[part], 0, start, given).logits()
        return [logits, *self._left(0, tokens)]

    def _decoded(self, decode: Decode, rows: Sequence[int], tokens: Sequence[int]) -> Iterator[Arrays]:
        self._begin()
        for row in rows:
            self._slots.copy_row(0, row)
            self._slots.adapt_row(row, self._adapter)
        logits: Arrays = []
        for position, token in enumerate(tokens, self._start):
            predictions = decode(rows, [token] * len(rows), [position] * len(rows))
            logits = [prediction.logits() for prediction in predictions]
        for row, line in zip(rows, logits, strict=True):
            yield [line, *self._left(row, tokens)]

    def _begin(self) -> None:
        """Restores row 0 to its state before the tokens."""
        for row in range(self._slots.slots):  # pages that they have may be what row 0 needs
            self._slots.clear_row(row)
            self._slots.adapt_row(row, self._adapter if row == 0 else 0)
        if self._history:
            self._slots.write_row(0, 0, self._history)

    def _left(self, row: int, tokens: Sequence[int]) -> Sequence[np.ndarray]:
        return self._slots.read_row(row, 0, self._start + len(tokens))


def _random_entries(random: np.random.Generator, like: np.ndarray, encoding: Encoding | None) -> np.ndarray:
    """Returns entries of a row; those of a quantized cache are packed."""
    if encoding is None or like.dtype != np.int8:
        return random.standard_normal(like.shape).astype(like.dtype)
    columns = like.shape[-1] // encoding.block_bytes * encoding.block
    return encoding.pack(random.standard_normal((*like.shape[:-1], columns), np.float32))


@contextmanager
def _random_adapter(slots: BundleSlots, tables: AdapterTables) -> Iterator[None]:
    """Has adapter 1 random matrices for the block; rows and tables are empty afterwards."""
    random = np.random.default_rng(0)
    factors = {
        name: Factors(
            random.standard_normal((tables.rank, inputs), np.float32) * np.float32(inputs**-0.5),
            random.standard_normal((outputs, tables.rank), np.float32) * np.float32(tables.rank**-0.5),
        )
        for name, (outputs, inputs) in tables.shapes.items()
    }
    tables.put(1, factors)
    try:
        yield
    finally:
        tables.put(1, {})
        for row in range(slots.slots):
            slots.adapt_row(row, 0)


_SEEING: Final = (_Stretch.text, _Stretch.pictures)


def _all_same(calls: Iterator[Arrays]) -> bool:
    expected = [array.tobytes() for array in next(calls)]
    return all([array.tobytes() for array in arrays] == expected for arrays in calls)
