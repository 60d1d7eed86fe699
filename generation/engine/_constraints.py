"""The constraint of an answer: immediate, or with masks that are computed elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from generation.engine._errors import ConstraintError
from generation.engine._request import AwaitedConstraint, TokenConstraint


class AnswerConstraint:
    """Constraint of an answer. Everything that it raises is a ``ConstraintError``."""

    def __init__(self, constraint: TokenConstraint) -> None:
        """Begins with a constraint that has seen nothing."""
        self._constraint: Final = constraint
        self._awaited: Final = constraint if isinstance(constraint, AwaitedConstraint) else None

    @property
    def finished(self) -> bool:
        """True once only an end may follow."""
        with _constrained("accept"):
            return self._constraint.finished

    def ready(self, seconds: float) -> bool:
        """Returns True once ``allowed`` returns at once; waits up to some seconds for it."""
        with _constrained("mask"):
            return self._awaited is None or self._awaited.ready(seconds)

    def settled(self, seconds: float) -> bool:
        """Returns True once ``finished`` returns at once; waits up to some seconds for it."""
        with _constrained("accept"):
            return self._awaited is None or self._awaited.settled(seconds)

    def allowed(self, vocabulary: int) -> np.ndarray:
        """Returns the tokens that may come next, bool [V].

        Raises:
            ConstraintError: there is none.
        """
        allowed = np.zeros(vocabulary, np.bool_)
        with _constrained("mask"):
            self._constraint.mask(allowed)
        if not allowed.any():
            raise ConstraintError("the request's constraint allows no token here: give one that an answer can satisfy")
        return allowed

    def post(self, token_id: int) -> None:
        """Goes on with a token."""
        with _constrained("accept"):
            (self._awaited.post if self._awaited is not None else self._constraint.accept)(token_id)

    def close(self) -> None:
        """Frees the computation of the masks."""
        if self._awaited is not None:
            self._awaited.close()


@contextmanager
def _constrained(call: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ConstraintError(
            f"the request's constraint failed in {call} ({type(error).__name__}: {error}): give another"
        ) from error
