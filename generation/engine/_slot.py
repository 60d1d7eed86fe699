"""Rows of the model's caches, and their contents."""

from typing import Final

import numpy as np

from generation.engine._answer import Answer
from generation.engine._store import Block


class Slot:
    """One row of the caches. It keeps its tokens when its answer has ended, for the next that begins alike.

    Attributes:
        row: index of the row.
        answer: answer that runs in it; None while it is free.
        begun: whether the row has been made ready for the answer.
        used: tick in which an answer last had it.
        cut: positions behind the whole pieces with which its prompt was run from position 0 on.
        block: block of the prefix store that has its tokens up to some position; None if unknown.
        salt: salt of the request that the row's tokens belong to; None if nobody may reuse them.
    """

    def __init__(self, row: int, capacity: int) -> None:
        """Begins empty."""
        self.row: Final = row
        self.answer: Answer | None = None
        self.begun = False
        self.used = 0
        self.cut: list[int] = []
        self.block: Block | None = None
        self.salt: str | None = None
        self.filled = 0
        self._held: Final = np.zeros(capacity, np.int64)

    @property
    def tokens(self) -> np.ndarray:
        """Keys of the tokens in the row, i64 [filled]: see ``Answer.keys``."""
        return self._held[: self.filled]

    @property
    def next_token(self) -> int:
        """The answer's first token that the row does not hold yet."""
        assert self.answer
        return int(self.answer.tokens[self.filled])

    @property
    def ready(self) -> bool:
        """True while its answer takes part in each decode."""
        return self.answer is not None and self.begun and not self.answer.prefilling and not self.answer.waiting

    def hold(self, tokens: np.ndarray, cut: list[int], salt: str | None) -> None:
        """Notes that the row now holds these tokens i64 [n], with their pieces and their owner."""
        self.filled = len(tokens)
        self._held[: self.filled] = tokens
        self.cut = cut
        self.salt = salt

    def feed(self, count: int) -> None:
        """Notes that the answer's next tokens have been run."""
        assert self.answer
        stop = self.filled + count
        self._held[self.filled : stop] = self.answer.keys[self.filled : stop]
        self.filled = self.answer.fed = stop

    def give(self, answer: Answer) -> None:
        """Gives the row to an answer, which has yet to begin."""
        self.answer, self.begun = answer, False

    def free(self, tick: int) -> None:
        """Takes the row from its answer."""
        self.answer, self.used = None, tick

    def forget(self) -> None:
        """Notes that the row's contents are unknown."""
        self.hold(np.zeros(0, np.int64), [], None)
        self.block = None
