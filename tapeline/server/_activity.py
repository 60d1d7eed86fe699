"""Progress of a model's calls, which the watchdog looks at."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final


class Activity:
    """Notes when calls of a model last made progress. Any thread may call it.

    Several calls that run at once count as one: while any of them goes on, the model does.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._calls = 0
        self._worked_at = 0.0

    @contextmanager
    def call(self) -> Iterator[None]:
        """Counts a call as running for the block."""
        self.beat()
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
            self.beat()

    def beat(self) -> None:
        """Notes progress."""
        self._worked_at = self._clock()

    def stalled_seconds(self) -> float:
        """Returns the time since the last progress; 0 while idle."""
        return self._clock() - self._worked_at if self._calls else 0.0

    def fault(self, seconds: float) -> str | None:
        """Returns why the model cannot answer, or None if it can.

        Args:
            seconds: time without progress after which a model with running calls counts as stuck; 0 for never.
        """
        stalled = self.stalled_seconds()
        if not seconds or stalled < seconds:
            return None
        return f"the model has made no progress for {stalled:.0f} s: a call of it does not return"
