"""Requests that wait for a row: clients in turn, each client's requests in order."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from generation.engine._answer import Answer
from generation.engine._errors import BusyError, EngineClosedError

_LEAST_RETRY: Final = 1.0
_MOST_RETRY: Final = 60.0
_NEWEST: Final = 0.2  # weight of the newest interval in the average of them


class WaitingQueue:
    """Queue of requests that any thread may add to, and that the engine's thread empties."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Makes an empty queue for up to ``most`` requests."""
        self._most: Final = most
        self._clock: Final = clock
        self._changed: Final = threading.Condition()
        self._lines: Final[OrderedDict[str, deque[Answer]]] = OrderedDict()
        self._count = 0
        self._closed: str | None = None
        self._taken_at: float | None = None
        self._interval = _LEAST_RETRY

    def __len__(self) -> int:
        return self._count

    def check_room(self, count: int) -> None:
        """Checks whether some requests could be added now.

        Raises:
            EngineClosedError: the queue is closed.
            BusyError: it has less room.
        """
        with self._changed:
            self._check_room(count)

    def put(self, answer: Answer) -> None:
        """Adds a request.

        Raises:
            EngineClosedError: the queue is closed.
            BusyError: it is full.
        """
        with self._changed:
            self._check_room(1)
            self._lines.setdefault(answer.request.client, deque()).append(answer)
            self._count += 1
            self._changed.notify_all()

    def first(self) -> Answer | None:
        """Returns the next item of ``take`` without removing it."""
        with self._changed:
            if not self._lines:
                self._taken_at = None
            return next((line[0] for line in self._lines.values()), None)

    def take(self) -> Answer | None:
        """Removes and returns the first request of the next client; None of an empty queue."""
        with self._changed:
            if not self._lines:
                self._taken_at = None
                return None
            self._note_interval()  # first: nothing is lost if the clock raises
            client, line = self._lines.popitem(last=False)
            answer = line.popleft()
            if line:
                self._lines[client] = line
            self._count -= 1
            return answer

    def remove(self, leaves: Callable[[Answer], bool]) -> list[Answer]:
        """Removes and returns the requests for which ``leaves`` returns True."""
        if not self._count:
            return []
        with self._changed:
            removed = [answer for line in self._lines.values() for answer in line if leaves(answer)]
            for answer in removed:
                line = self._lines[answer.request.client]
                line.remove(answer)
                if not line:
                    del self._lines[answer.request.client]
            self._count -= len(removed)
            return removed

    def close(self, message: str) -> None:
        """Refuses all requests from now on; those that wait stay."""
        with self._changed:
            self._closed = self._closed or message
            self._changed.notify_all()

    def wait(self, ready: Callable[[], bool]) -> None:
        """Blocks until a request waits, or ``ready`` returns True; it is asked again after each ``wake``."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > 0 or ready())

    def wake(self) -> None:
        """Has ``wait`` ask again."""
        with self._changed:
            self._changed.notify_all()

    def _check_room(self, count: int) -> None:
        if self._closed is not None:
            raise EngineClosedError(self._closed)
        if self._count + count > self._most:
            raise BusyError(self._count, min(max(self._interval, _LEAST_RETRY), _MOST_RETRY))

    def _note_interval(self) -> None:
        now = self._clock()
        if self._taken_at is not None:
            self._interval += _NEWEST * (now - self._taken_at - self._interval)
        self._taken_at = now
