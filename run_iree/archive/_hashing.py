"""SHA-256 of a file that is still being written, computed by a thread that reads behind the writer."""

import hashlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from lang_core import InputError

_BLOCK: Final = 1 << 20
_NICE: Final = 5


class FollowingHash:
    """Running hash of a file's first bytes, as far as ``advance`` has said that they are written.

    One SHA-256 stream is slower than copying and cannot be split, so it runs on a second core and is waited for only
    if its result is needed.
    """

    def __init__(self, descriptor: int, name: str, done: int = 0, digest: Any = None) -> None:
        """Starts.

        Args:
            descriptor: readable descriptor of the file, which is closed at the end; the file may be renamed.
            name: name of the file in messages.
            done: number of bytes that are hashed already.
            digest: hash of these, which is continued.
        """
        self._name: Final = name
        self._done = done
        self._marks: Final[deque[tuple[int, Callable[[str], None]]]] = deque()
        self._descriptor: Final = descriptor
        self._changed: Final = threading.Condition()
        self._written = 0
        self._complete = False
        self._cancelled = False
        self._error: OSError | None = None
        self._hash: Final = digest or hashlib.sha256()
        self._thread: Final = threading.Thread(target=self._run, name="sha256", daemon=True)
        self._thread.start()

    def advance(self, written: int) -> None:
        """Says that the first ``written`` bytes are in the file."""
        with self._changed:
            self._written = written
            self._changed.notify()

    def mark(self, offset: int, note: Callable[[str], None]) -> None:
        """Has the thread call ``note`` with the SHA-256 of the first ``offset`` bytes; offsets must increase."""
        self._marks.append((offset, note))

    def finish(self, wait: bool = False) -> None:
        """Says that nothing more will be written; with ``wait`` returns when all is hashed."""
        with self._changed:
            self._complete = True
            self._changed.notify()
        if wait:
            self._thread.join()

    def cancel(self) -> None:
        """Stops the thread: the file is given up."""
        with self._changed:
            self._cancelled = True
            self._changed.notify()
        self._thread.join()

    def hexdigest(self) -> str:
        """Waits for the hash of the whole file and returns it.

        Raises:
            InputError: the file could not be read back.
        """
        self._thread.join()
        if self._error is not None:
            raise InputError(
                f"{self._name}: cannot read back the written bytes, or record the progress: {self._error.strerror}"
            ) from self._error
        return self._hash.hexdigest()

    def _run(self) -> None:
        block = memoryview(bytearray(_BLOCK))
        try:
            if sys.platform == "linux":  # where this sets the thread's priority: the writer goes first
                mine = threading.get_native_id()
                # A process that is nicer already may not be made less so: the system refuses that to a user.
                os.setpriority(os.PRIO_PROCESS, mine, max(_NICE, os.getpriority(os.PRIO_PROCESS, mine)))
            done = self._done
            while (stop := self._wait(done)) > done:
                while done < stop and not self._cancelled:
                    count = os.preadv(self._descriptor, [block[: self._upto(done, stop) - done]], done)
                    if not count:
                        raise OSError(0, f"the file ends at byte {done}")
                    self._hash.update(block[:count])
                    done += count
        except OSError as error:
            self._error = error
        finally:
            os.close(self._descriptor)

    def _upto(self, done: int, stop: int) -> int:
        """Answers the mark at ``done``; returns the offset at which the next block must end."""
        while self._marks and self._marks[0][0] <= done:
            offset, note = self._marks.popleft()
            if offset == done:
                note(self._hash.copy().hexdigest())
        return min(stop, done + _BLOCK, *(offset for offset, _ in list(self._marks)[:1]))

    def _wait(self, done: int) -> int:
        """Waits for more than ``done`` bytes; returns the number written, or ``done`` at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._cancelled or self._complete or self._written > done)
            return done if self._cancelled else self._written
