"""Model whose logits are a hash of a row's whole history: any mistake of position, row, copy or rest shows."""

import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from generation import KnownLogits, Prediction
from generation.engine._pool import PagePool

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15


class HashSlots:
    """Deterministic ``ModelRunner`` in NumPy. Each position of a row has an entry, a hash of its token and position.

    Where the model is not invariant, an entry depends on the chunk in which it was computed and its place there too.
    Where it is recurrent, logits depend on a state as well, which every token changes.

    Attributes:
        calls: names of all calls, in order.
        runs: number of those that make predictions.
        batches: sizes of all batches of ``decode``.
        reads: number of readings of logits, of all such models.
    """

    reads = 0
    position_axes = (0, None)
    position_bytes = 8
    pages: PagePool | None = None
    image_token: int | None = 7

    def __init__(
        self,
        slots: int = 4,
        capacity: int = 96,
        vocabulary: int = 41,
        chunks: tuple[int, ...] = (2, 4, 16),
        *,
        invariant: bool = True,
        recurrent: bool = False,
        scale: float = 6.0,
        verify_tokens: int = 0,
    ) -> None:
        """Makes empty rows; ``scale`` is the span of the logits."""
        self.verify_tokens = verify_tokens
        self.slots, self.capacity, self.vocabulary, self.chunks = slots, capacity, vocabulary, chunks
        self.invariant, self.recurrent = invariant, recurrent
        self.calls: list[str] = []
        self.runs = 0
        self.batches: list[int] = []
        self._scale = scale
        # Never zero, so that rest of nobody looks like an entry.
        self._entries = np.arange(1, slots * capacity + 1, dtype=np.uint64).reshape(slots, capacity)
        self._states = np.full(slots, 77, np.uint64)
        self._tokens = _mix(np.arange(vocabulary, dtype=np.uint64) + np.uint64(12345))

    def encode_image(self, pixels: np.ndarray) -> np.ndarray:
        """Returns a hash [height, 1] of the pixels f32 [3, height, width] for each of ``height`` tokens."""
        self._note("encode_image")
        whole = int(np.frombuffer(np.ascontiguousarray(pixels), np.uint32).sum(dtype=np.uint64))
        bits = _mix(np.arange(pixels.shape[1], dtype=np.uint64) + np.uint64(whole)) >> np.uint64(40)
        return bits.astype(np.float32)[:, None]

    def prefill_row(
        self, token_ids: Sequence[int], row: int, position: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        """See ``ModelRunner``."""
        self._note("prefill_row")
        chunk = next(size for size in self.chunks if size >= len(token_ids))
        assert len(token_ids) >= 1
        self._append(token_ids, row, position, 0 if self.invariant else chunk, embeddings)
        return self._prediction(row, position + len(token_ids))

    def decode(self, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Sequence[Prediction]:
        """See ``ModelRunner``."""
        self._note("decode")
        self.batches.append(len(rows))
        assert 1 <= len(rows) == len(set(rows)) == len(token_ids) == len(positions) <= self.slots
        for row, token_id, position in zip(rows, token_ids, positions, strict=True):
            self._append([token_id], row, position, 0)
        return [self._prediction(row, position + 1) for row, position in zip(rows, positions, strict=True)]

    def verify_row(self, token_ids: Sequence[int], row: int, position: int) -> Sequence[Prediction]:
        """See ``ModelRunner``."""
        self._note("verify_row")
        assert 1 <= len(token_ids) <= self.verify_tokens
        self._append(token_ids, row, position, 0)
        return [self._prediction(row, position + count) for count in range(1, len(token_ids) + 1)]

    def score_room(self, row: int, position: int) -> int:
        """See ``ModelRunner``."""
        del row, position
        return self.verify_tokens

    def copy_row(self, source: int, target: int, count: int | None = None) -> None:
        """See ``ModelRunner``."""
        self._note("copy_row")
        assert source != target
        assert count is None or 0 < count <= self.capacity
        self._entries[target], self._states[target] = self._entries[source], self._states[source]

    def clear_row(self, row: int) -> None:
        """See ``ModelRunner``."""
        self._note("clear_row")
        self._states[row] = 0

    def read_row(self, row: int, start: int, stop: int) -> Sequence[np.ndarray]:
        """See ``ModelRunner``."""
        self._note("read_row")
        assert 0 <= start < stop <= self.capacity
        return [self._entries[row, start:stop].copy(), self._states[row : row + 1].copy()]

    def write_row(self, row: int, start: int, arrays: Sequence[np.ndarray]) -> None:
        """See ``ModelRunner``."""
        self._note("write_row")
        entries, states = arrays
        assert start + len(entries) <= self.capacity
        self._entries[row, start : start + len(entries)] = entries
        self._states[row] = states[0]

    def _regime(self, row: int) -> int:
        """Returns a number that the entries of a row depend on."""
        del row
        return 0

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.runs += call in ("prefill_row", "decode", "verify_row")

    def _append(
        self, token_ids: Sequence[int], row: int, position: int, chunk: int, embeddings: np.ndarray | None = None
    ) -> None:
        stop = position + len(token_ids)
        assert 0 <= position < stop <= self.capacity
        assert all(0 <= token_id < self.vocabulary for token_id in token_ids)
        places = np.arange(position, stop, dtype=np.uint64) + np.uint64(self._regime(row) << 32)
        if chunk:
            places = places * np.uint64(1009) + np.arange(len(token_ids), dtype=np.uint64) * np.uint64(31 + chunk)
        seen = np.zeros(len(token_ids)) if embeddings is None else embeddings[:, 0]
        tokens = np.asarray(token_ids, np.uint64) + (seen.astype(np.uint64) << np.uint64(20))
        self._entries[row, position:stop] = _mix(tokens * np.uint64(_GOLDEN) + _mix(places))
        if self.recurrent:
            state = int(self._states[row])
            for entry in self._entries[row, position:stop].tolist():
                state = (state * 6364136223846793005 + entry) & _MASK
            self._states[row] = state

    def _prediction(self, row: int, filled: int) -> Prediction:
        history = int(self._entries[row, :filled].sum(dtype=np.uint64)) + int(self._states[row]) * self.recurrent
        bits = _mix(self._tokens ^ np.uint64(history & _MASK)) >> np.uint64(40)
        logits = (bits.astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5)) * self._scale
        return _HashPrediction(logits, self, self.runs)


class LengthHashSlots(HashSlots):
    """Rows whose entries depend on whether the sequence is longer than ``original``; a ``LengthDependentRunner``."""

    def __init__(self, original: int, **given: Any) -> None:
        """Makes empty rows; other arguments as of the base class."""
        super().__init__(**given)
        self._original = original
        self._lengths = [0] * self.slots

    def begin_row(self, row: int, token_ids: np.ndarray) -> None:
        """See ``LengthDependentRunner``."""
        self._lengths[row] = len(token_ids)

    def outgrown(self, row: int, length: int) -> bool:
        """See ``LengthDependentRunner``."""
        return self.regime(length) != self._regime(row)

    def regime(self, length: int) -> int:
        """See ``LengthDependentRunner``."""
        return int(length > self._original)

    def _regime(self, row: int) -> int:
        return self.regime(self._lengths[row])


class _HashPrediction:
    """Prediction that counts how often logits were read, and is gone with the model's next run."""

    def __init__(self, logits: np.ndarray, model: HashSlots, runs: int) -> None:
        self._known, self._model, self._runs = KnownLogits(logits), weakref.ref(model), runs

    def logits(self) -> np.ndarray:
        """Returns the logits f32 [V]."""
        HashSlots.reads += 1
        self._check()
        return self._known.logits()

    def likeliest(self) -> int:
        """Returns the index of the largest logit."""
        self._check()
        return self._known.likeliest()

    def _check(self) -> None:
        model = self._model()  # None once nobody can call it
        assert model is None or model.runs == self._runs, f"read after {model.calls[-1]}"


def _mix(values: Any) -> np.ndarray:
    """Returns a hash u64 of each value (the finaliser of SplitMix64)."""
    values = np.asarray(values, np.uint64)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
