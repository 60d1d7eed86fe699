"""Lock that threads get in the order in which they ask for it."""

import threading
from collections import deque
from typing import Final


class FairLock:
    """Lock for several threads. A thread that gives it back and asks again comes behind those that wait."""

    def __init__(self) -> None:
        """Makes an unlocked lock."""
        self._guard: Final = threading.Lock()
        self._waiting: Final = deque[threading.Lock]()
        self._taken = False

    def __enter__(self) -> None:
        """Waits until the lock is this thread's."""
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:
            self._leave(turn)
            raise

    def __exit__(self, *error: object) -> None:
        """Hands the lock to the thread that has waited longest."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False

    def _leave(self, turn: threading.Lock) -> None:
        """Gives up waiting, as after an interrupt; a lock that was handed over meanwhile goes to the next thread."""
        with self._guard:
            handed = turn not in self._waiting
            if not handed:
                self._waiting.remove(turn)
        if handed:
            self.__exit__()
