"""Drafts by a smaller model, in rows of its own."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from generation import Drafter, Prediction
from generation.engine._pieces import canonical_pieces
from generation.engine._runner import LengthDependentRunner, ModelRunner
from lang_core import checked_choices

_STEPS: Final = 8  # tokens that single steps append; more are run in pieces, as a prompt is


@checked_choices
class DraftRows:
    """Drafters by a smaller model with the same vocabulary, one for each of its rows: a ``Drafting.begin``."""

    def __init__(self, open_runner: Callable[[], ModelRunner], *, states: bool = False) -> None:
        """Opens the model.

        Args:
            open_runner: returns the model with empty rows; it is asked again after a call of the model has failed.
            states: whether the model has states, which cannot go back: a copy of them is kept before tokens are
                proposed, and put back if some are wrong.
        """
        self._open: Final = open_runner
        self._states: Final = states
        self.rows = self._opened()

    def __call__(self, row: int, fresh: bool) -> Drafter:
        """Returns the drafter of a row; ``fresh`` forgets the row's contents."""
        if any(one.failed for one in self.rows):
            self.rows = self._opened()
        if fresh:
            self.rows[row].forget()
        return self.rows[row]

    def _opened(self) -> "Sequence[DraftRow]":
        runner = self._open()
        return [DraftRow(runner, row, self._states) for row in range(runner.slots)]


@checked_choices
class DraftRow:
    """Proposes the likeliest tokens of a smaller model. Serves one answer after the other.

    Attributes:
        failed: whether a call of the model has failed, so that the row's contents are unknown.
    """

    def __init__(self, runner: ModelRunner, row: int, states: bool) -> None:
        """Takes an empty row; ``states`` as for ``DraftRows``."""
        self.failed = False
        self._runner: Final = runner
        self._row: Final = row
        self._states: Final = states
        self._held: list[int] = []  # tokens of the row
        self._kept: tuple[int, Sequence[np.ndarray]] | None = None  # number of tokens, and the states after them

    def propose(self, history: Sequence[int], count: int) -> list[int]:
        """Returns the likeliest tokens, as many as the row has room for."""
        count = min(count, self._runner.capacity - len(history) + 1)  # the last one is not run
        if count < 1:
            return []
        try:
            return self._proposed(history, count)
        except BaseException:
            self.failed = True
            raise

    def forget(self) -> None:
        """Has the next call run all of its tokens."""
        self._held, self._kept = [], None

    def _proposed(self, history: Sequence[int], count: int) -> list[int]:
        tokens: list[int] = []
        prediction = self._read(history)
        if self._states and count > 1:
            self._kept = len(history), self._runner.read_row(self._row, len(history), len(history))
        while (likeliest := prediction.likeliest()) >= 0:  # -1 if its logits are not finite: there is no guess
            tokens.append(likeliest)
            if len(tokens) == count:
                break
            prediction = self._step(likeliest)
        return tokens

    def _read(self, history: Sequence[int]) -> Prediction:
        """Runs the tokens that the row lacks, and returns the prediction after the last one."""
        known = self._known(history)
        if not known:
            self._begin(history)
        self._held = list(history[:known])
        missing = history[known:]
        if len(missing) <= _STEPS:
            return [self._step(token) for token in missing][-1]
        prediction: Prediction | None = None
        for size in canonical_pieces(len(missing), self._runner.chunks):
            piece = history[len(self._held) : len(self._held) + size]
            prediction = self._runner.prefill_row(piece, self._row, len(self._held))
            self._held += piece
        assert prediction is not None
        return prediction

    def _known(self, history: Sequence[int]) -> int:
        """Makes the row hold as many of a sequence's first tokens as it can, but not the last, and returns how many."""
        runner = self._runner
        if isinstance(runner, LengthDependentRunner) and runner.outgrown(self._row, len(history)):
            return 0
        known = min(_common_length(self._held, history), len(history) - 1)
        if not self._states or known == len(self._held):
            return known
        if self._kept is None or self._kept[0] > known:
            return 0
        count, states = self._kept
        runner.write_row(self._row, count, states)
        return count

    def _begin(self, history: Sequence[int]) -> None:
        self.forget()
        if isinstance(self._runner, LengthDependentRunner):
            self._runner.begin_row(self._row, np.array(history))
        if self._states:
            self._runner.clear_row(self._row)

    def _step(self, token: int) -> Prediction:
        prediction = self._runner.decode([self._row], [token], [len(self._held)])[0]
        self._held.append(token)
        return prediction


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Returns how many tokens two sequences have in common at their beginnings."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(a), len(b)))
