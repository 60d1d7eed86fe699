"""Signals that stop a server: a process beside it sees them, and ends the server if it does not end by itself."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

from lang_core import python_command

_PROGRAM: Final = "from tapeline.interrupts._watcher import main; main()"
_ROOT: Final = str(Path(__file__).absolute().parents[2])  # of the package


class StopSignals:
    """Signal handlers of the main thread for a block, and a process that kills this one if it does not end in time.

    Handlers are called in the main thread. ``fileno()`` is readable after each signal, also one that another thread
    received: an event loop that watches it is woken. ``clear`` empties it.

    Args:
        handlers: function of each signal.
        term_seconds: time from SIGTERM to the end of the process, at most.
        interrupt_seconds: time from SIGINT to the end of the process, at most.
        again_seconds: time from a second signal to the end of the process, at most.
    """

    def __init__(
        self,
        handlers: Mapping[signal.Signals, Callable[[], object]],
        *,
        term_seconds: float,
        interrupt_seconds: float,
        again_seconds: float,
    ) -> None:
        self._handlers: Final = handlers
        self._seconds: Final = (term_seconds, interrupt_seconds, again_seconds)
        self._before: dict[signal.Signals, Any] = {}
        self._write = self._read = -1
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Starts the process and takes the signals."""
        told, self._write = os.pipe()
        self._read, echo = os.pipe()
        os.set_blocking(self._write, False)
        os.set_blocking(self._read, False)
        self._process = subprocess.Popen(
            python_command("-S", "-c", _PROGRAM, str(os.getpid()), *map(str, self._seconds)),
            stdin=told,
            stdout=echo,
            env={**os.environ, "PYTHONPATH": _ROOT},
            start_new_session=True,  # signals of the terminal are for this process
        )
        os.close(told)
        os.close(echo)
        for number, handler in self._handlers.items():
            self._before[number] = signal.signal(number, _calling(handler))
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Gives the signals back and ends the process."""
        signal.set_wakeup_fd(-1)
        for number, before in self._before.items():
            if before is not None:  # a handler that is not Python's
                signal.signal(number, before)
        os.close(self._write)
        os.close(self._read)
        if self._process is not None:
            self._process.kill()  # it holds nothing
            self._process.wait()

    def fileno(self) -> int:
        """Returns the descriptor that is readable after a signal, or when the process beside has ended."""
        return self._read

    def clear(self) -> bool:
        """Empties the descriptor, and returns False if the process beside has ended, so that nothing comes any more."""
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._read, 64))
        return True


def _calling(handler: Callable[[], object]) -> Callable[[int, FrameType | None], None]:
    def call(number: int, frame: FrameType | None) -> None:
        handler()

    return call
