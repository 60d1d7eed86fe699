"""Documents packed into windows of one length, in an order that a seed decides."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from lang_core import InputError
from tapeline.finetuning._documents import TrainingDocument


class Batch(NamedTuple):
    """Windows of a step.

    Attributes:
        token_ids: i32 [A, B, T + 1].
        weights: f32 [A, B, T], of the predictions of the tokens behind the first; they sum to 1.
    """

    token_ids: np.ndarray
    weights: np.ndarray


class PackedWindows:
    """Windows of documents that stand one after the other; every token but the very first is predicted once a round.

    Args:
        documents: documents.
        sequence: predictions per window, T.
        seed: random seed; the order is the same with each version of NumPy.

    Raises:
        InputError: the documents have fewer tokens than a window, or none to learn.
    """

    def __init__(self, documents: Sequence[TrainingDocument], sequence: int, seed: int) -> None:
        ids = np.concatenate([document.ids for document in documents])
        learned = np.concatenate([document.learned for document in documents])
        self.tokens: Final = len(ids)
        self.learned: Final = int(learned.sum())
        if self.tokens < sequence + 1:
            raise InputError(
                f"sequence={sequence}: the data have {self.tokens} tokens, and a window is of {sequence + 1}: give "
                f"more data, or a sequence of at most {max(self.tokens - 1, 1)}"
            )
        count = -(-(self.tokens - 1) // sequence)
        length = count * sequence + 1
        ids, learned = np.resize(ids, length), np.concatenate([learned, np.zeros(length - self.tokens, bool)])
        rows = np.arange(count)[:, None] * sequence + np.arange(sequence + 1)
        kept = learned[rows[:, 1:]].any(1)
        self._ids: Final = ids[rows][kept]
        self._learned: Final = learned[rows[:, 1:]][kept]
        self._order: Final = lru_cache(4)(self._shuffled)
        self._seed: Final = seed
        if not len(self._ids):
            raise InputError("data: have no token to learn: give texts, or messages of an assistant")

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._ids)

    def batch(self, step: int, accumulate: int, rows: int) -> Batch:
        """Returns the windows of a step, the first of which is 0: it depends on nothing else."""
        count = accumulate * rows
        places = [self._place(number) for number in range(step * count, (step + 1) * count)]
        learned = self._learned[places].astype(np.float64)
        weights = (learned / learned.sum()).astype(np.float32)
        shape = accumulate, rows, -1
        return Batch(self._ids[places].reshape(shape), weights.reshape(shape))

    def _place(self, number: int) -> int:
        epoch, index = divmod(number, len(self._ids))
        return int(self._order(epoch)[index])

    def _shuffled(self, epoch: int) -> np.ndarray:
        raw = np.random.PCG64([self._seed, epoch]).random_raw(len(self._ids))
        return np.argsort(raw, kind="stable")
