"""Seconds that calls take, to choose the work of a tick."""

from collections.abc import Callable
from typing import Final, TypeVar

_Result = TypeVar("_Result")
_NEWEST: Final = 0.3  # weight of the newest call in the average


class Pace:
    """Seconds of calls by their size."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Knows nothing yet."""
        self._clock: Final = clock
        self._seconds: Final[dict[int, float]] = {}

    def measured(self, size: int, call: Callable[[], _Result]) -> _Result:
        """Makes a call of a size, and notes how long it took."""
        begun = self._clock()
        result = call()
        seconds = self._clock() - begun
        known = self._seconds.get(size, seconds)
        self._seconds[size] = known + _NEWEST * (seconds - known)
        return result

    def seconds(self, size: int) -> float:
        """Returns how long a call of a size takes, 0 if there was none yet."""
        return self._seconds.get(size, 0.0)


class Allowance:
    """Tokens and seconds that may be spent on prompts in one tick. Seconds pass by themselves, whatever is done.

    Attributes:
        spent: whether a call was made.
    """

    def __init__(self, tokens: int, seconds: float, clock: Callable[[], float]) -> None:
        """Begins with all of it, now."""
        self._tokens = tokens
        self._clock: Final = clock
        self._until: Final = clock() + seconds
        self.spent = False

    def allows(self, tokens: int, seconds: float, limited: bool) -> bool:
        """Returns whether there is room for a call; its seconds count only if they are limited."""
        return tokens <= self._tokens and (not limited or self._clock() + seconds <= self._until)

    def spend(self, tokens: int) -> None:
        """Notes a call."""
        self._tokens -= tokens
        self.spent = True
