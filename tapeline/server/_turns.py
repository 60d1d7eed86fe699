"""Calls of a model that takes one at a time."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from generation.engine import BusyError
from tapeline.server._activity import Activity

_MOST_WAITING: Final = 64
Result = TypeVar("Result")


@dataclass(slots=True)
class _Line:
    """Calls of an event loop that wait."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


@dataclass(frozen=True, slots=True)
class SerialExecutor:
    """Runs the calls of several threads one at a time; a bounded number waits.

    A request waits in ``turn`` for its call, so that it does not block a thread meanwhile.

    Attributes:
        activity: progress of the call that runs.
    """

    activity: Activity = field(default_factory=Activity, repr=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_MOST_WAITING), repr=False)

    _line: _Line = field(default_factory=_Line, repr=False)

    @asynccontextmanager
    async def turn(self, *, again: bool = False) -> AsyncIterator[None]:
        """Waits in the event loop for other blocks.

        Args:
            again: whether the request had a turn before: it waits then, however many wait.

        Raises:
            BusyError: too many blocks wait.
        """
        line = self._line
        if line.count > _MOST_WAITING and not again:
            raise BusyError(_MOST_WAITING, 1.0)
        line.count += 1
        try:
            async with line.lock:
                yield
        finally:
            line.count -= 1

    def take(self, call: Callable[[], Result]) -> Result:
        """Makes a call when it is its turn.

        Raises:
            BusyError: too many calls wait.
        """
        if not self._waiting.acquire(blocking=False):
            raise BusyError(_MOST_WAITING, 1.0)
        try:
            with self._turn, self.activity.call():
                return call()
        finally:
            self._waiting.release()

    def drain(self, seconds: float) -> None:
        """Waits for the call that runs."""
        if self._turn.acquire(timeout=seconds):
            self._turn.release()

    def last(self, call: Callable[[], object]) -> None:
        """Makes a call after running ones, however many wait."""
        with self._turn:
            call()
