"""Constraints of requests beside a grammar: a least number of tokens, and a limit of the model's thinking."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from generation.engine import AwaitedConstraint, TokenConstraint
from lang_core import checked_choices
from tapeline.server._numbers import NumberBound


@dataclass(slots=True)
class Thinking:
    """Thinking of one answer while it comes.

    Attributes:
        opening: token that begins it.
        closing: token that ends it.
        budget: tokens that it may still have.
        open: whether the model is thinking.
    """

    opening: int
    closing: int
    budget: int
    open: bool

    @property
    def spent(self) -> bool:
        """True if the next token must end the thinking."""
        return self.open and self.budget <= 0

    def accept(self, token_id: int) -> None:
        """Goes on with a token."""
        if token_id == self.closing:
            self.open = False
        elif token_id == self.opening:
            self.open = True
        elif self.open:
            self.budget -= 1


@dataclass(frozen=True, slots=True)
class ThinkingLimit:
    """Limit of the thinking of each answer.

    Attributes:
        opening: token that begins the thinking.
        closing: token that ends it.
        budget: largest number of tokens between them.
    """

    opening: int
    closing: int
    budget: int

    def begin(self, prompt: Sequence[int]) -> Thinking:
        """Returns the thinking of an answer to a prompt, which may have begun it."""
        last = next((token for token in reversed(prompt) if token in (self.opening, self.closing)), self.closing)
        return Thinking(self.opening, self.closing, self.budget, last == self.opening)


class HeldAnswer:
    """Constraint of an answer; it has the protocol ``AwaitedConstraint``.

    Args:
        inner: further constraint, such as a grammar; None for free text.
        min_tokens: number of tokens before which end tokens are forbidden, unless all other tokens are.
        ends: tokens that end the answer.
        thinking: the model's thinking, which ends when its budget is spent; None for unlimited.
        numbers: bound on the digits of numbers, if the answer is JSON.
    """

    @checked_choices
    def __init__(
        self,
        inner: TokenConstraint | None,
        *,
        min_tokens: int,
        ends: Collection[int],
        thinking: Thinking | None = None,
        numbers: NumberBound | None = None,
    ) -> None:
        self._inner: Final = inner
        self._awaited: Final = inner if isinstance(inner, AwaitedConstraint) else None
        self._left = min_tokens
        self._ends: Final = sorted(ends)
        self._thinking: Final = thinking
        self._numbers: Final = numbers

    @property
    def finished(self) -> bool:
        """True once only an end token may follow."""
        return self._inner is not None and self._inner.finished

    def mask(self, out: np.ndarray) -> None:
        """Writes which ids may come next."""
        if self._inner is None:
            out[:] = True
        else:
            self._inner.mask(out)
        if self._numbers is not None:
            self._numbers.mask(out)
        thinking = self._thinking
        if thinking is not None and thinking.spent and out[thinking.closing]:
            out[:] = False
            out[thinking.closing] = True
            return
        ends = [end for end in self._ends if end < len(out)]
        if self._left > 0 and ends:
            allowed = out[ends]
            out[ends] = False
            if not out.any():
                out[ends] = allowed

    def accept(self, token_id: int) -> None:
        """Goes on with a token that was chosen."""
        if self._inner is not None:
            self._inner.accept(token_id)
        self._count(token_id)

    def post(self, token_id: int) -> None:
        """Continues with a chosen token, without waiting for its masks."""
        if self._awaited is not None:
            self._awaited.post(token_id)
        elif self._inner is not None:
            self._inner.accept(token_id)
        self._count(token_id)

    def settled(self, seconds: float) -> bool:
        """Returns True once ``finished`` returns at once; waits up to some seconds for it."""
        return self._awaited is None or self._awaited.settled(seconds)

    def ready(self, seconds: float) -> bool:
        """Returns True once ``mask`` returns at once, or raises; waits up to some seconds for it."""
        return self._awaited is None or self._awaited.ready(seconds)

    def close(self) -> None:
        """Frees the computation of the masks."""
        if self._awaited is not None:
            self._awaited.close()

    def _count(self, token_id: int) -> None:
        self._left -= 1
        if self._thinking is not None:
            self._thinking.accept(token_id)
        if self._numbers is not None and token_id not in self._ends:
            self._numbers.accept(token_id)
