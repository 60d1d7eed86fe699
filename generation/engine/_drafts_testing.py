"""Drafter for tests, which knows the model."""

from collections.abc import Sequence

import numpy as np

from generation.engine._hash_slots_testing import HashSlots


class OftenRight:
    """Drafter that runs the model greedily, and errs at a random place of some drafts.

    Args:
        row: row of the answer.
    """

    def __init__(self, row: int) -> None:
        self._random = np.random.default_rng(row)
        self._history: list[int] = []

    def propose(self, history: Sequence[int], count: int) -> Sequence[int]:
        """Returns 0 to ``count`` tokens; fails where ``history`` does not extend that of the last call."""
        assert list(history[: len(self._history)]) == self._history
        assert count >= 1
        self._history = list(history)
        draft = self._greedy(list(history))[: self._random.integers(0, count + 1)]
        if draft and self._random.random() < 0.5:
            place = self._random.integers(0, len(draft))
            draft[place] = (draft[place] + 1) % HashSlots().vocabulary
        return draft

    def _greedy(self, history: list[int]) -> list[int]:
        model, tokens = HashSlots(chunks=(96,)), list[int]()
        prediction = model.prefill_row(history, 0, 0)
        while len(history) < model.capacity and len(tokens) < 5:
            tokens.append(prediction.likeliest())
            history.append(tokens[-1])
            prediction = model.decode([0], [tokens[-1]], [len(history) - 1])[0]
        return tokens
