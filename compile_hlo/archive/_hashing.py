"""The SHA-256 of a file that is still being written, made by a thread that reads behind the writer."""

import hashlib
import os
import sys
import threading
from typing import Final

from lang_core import InputError

_BLOCK: Final = 1 << 20
_NICE: Final = 5


class FollowingHash:
    """Hashes the first ``advance``d bytes of a file, as they are in the file, on a second core.

    One SHA-256 stream is slower than copying, and it cannot be split: so nobody waits for it before they need it.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        """Takes over a descriptor that can be read (the file may be renamed); ``name`` is what messages call it."""
        self._name: Final = name
        self._descriptor: Final = descriptor
        self._changed: Final = threading.Condition()
        self._written = 0
        self._complete = False
        self._cancelled = False
        self._error: OSError | None = None
        self._hash: Final = hashlib.sha256()
        self._thread: Final = threading.Thread(target=self._run, name="sha256", daemon=True)
        self._thread.start()

    def advance(self, written: int) -> None:
        """So many bytes, from the start, are in the file."""
        with self._changed:
            self._written = written
            self._changed.notify()

    def finish(self) -> None:
        """The file is complete."""
        with self._changed:
            self._complete = True
            self._changed.notify()

    def cancel(self) -> None:
        """The file is given up: stops the thread."""
        with self._changed:
            self._cancelled = True
            self._changed.notify()
        self._thread.join()

    def hexdigest(self) -> str:
        """Waits for the end. Raises InputError where the file could not be read back."""
        self._thread.join()
        if self._error is not None:
            raise InputError(
                f"{self._name}: cannot read back what was written: {self._error.strerror}"
            ) from self._error
        return self._hash.hexdigest()

    def _run(self) -> None:
        block = memoryview(bytearray(_BLOCK))
        try:
            if sys.platform == "linux":  # where this sets the thread's priority: the writer goes first
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
            done = 0
            while (stop := self._wait(done)) > done:
                while done < stop and not self._cancelled:
                    count = os.preadv(self._descriptor, [block[: min(_BLOCK, stop - done)]], done)
                    if not count:
                        raise OSError(0, f"the file ends at byte {done}")
                    self._hash.update(block[:count])
                    done += count
        except OSError as error:
            self._error = error
        finally:
            os.close(self._descriptor)

    def _wait(self, done: int) -> int:
        """Waits for more bytes than ``done``; returns how many there are, ``done`` for the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._cancelled or self._complete or self._written > done)
            return done if self._cancelled else self._written
