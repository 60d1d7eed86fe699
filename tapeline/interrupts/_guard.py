"""Guard of a program: a thread that sees each Ctrl-C, also while the main thread runs native code.

The first one raises KeyboardInterrupt in the main thread, so that temporary files are removed; while a native module is
imported it waits, for an exception there may crash the module. If the program has not ended soon after, or if a second
one comes, the guard's thread ends the process.
"""

import atexit
import contextlib
import fcntl
import importlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Final, NoReturn

from tapeline.interrupts._processes import end_at_once

EXIT_INTERRUPTED: Final = 130
"""Exit code of a program that Ctrl-C ended."""

_GRACE: Final = 1.3  # seconds that the main thread has to end; a process of an export takes 0.7
_RETRY: Final = 0.01  # seconds
_LOADER: Final = "<frozen importlib._bootstrap_external>"
_NATIVE: Final = ("ExtensionFileLoader.create_module", "ExtensionFileLoader.exec_module")
_LINE: Final = "error: interrupted\n"
_SHOW_CURSOR: Final = "\x1b[?25h"  # which bars of progress hide


class _Guard:
    def __init__(self) -> None:
        self.started = False
        self.received = False
        self._over = False
        self._deferring = False
        self._deferred = False
        self._said: Final = threading.Lock()  # acquired once
        self._read = self._write = -1

    def start(self) -> None:
        """Takes SIGINT; called by the main thread, before anything slow is imported."""
        if self.started or (signal.getsignal(signal.SIGINT) is signal.SIG_IGN and not _has_terminal()):
            return  # a job in the background of a script, which ignores what the terminal sends the script
        self.started = True
        self._read, self._write = map(_above_streams, os.pipe())
        os.set_blocking(self._write, False)
        atexit.register(self._ignore)  # as the first: it runs last
        hook = sys.unraisablehook

        def unraisable(fault: Any) -> None:
            if fault.exc_type is KeyboardInterrupt:  # raised in a destructor, where it would be lost
                self.end()
            hook(fault)

        sys.unraisablehook = unraisable
        self.take()
        threading.Thread(target=self._watch, name="interrupts", daemon=True).start()

    def take(self) -> None:
        """Takes SIGINT, again after others had it."""
        if self.started:
            signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            signal.signal(signal.SIGINT, self._interrupt)
            signal.signal(signal.SIGALRM, self._interrupt)

    def finish(self, code: object) -> None:
        """Ends the process if it was interrupted; else a later interrupt ends it at once."""
        self._over = True
        if self.received or code == EXIT_INTERRUPTED:
            if self.started:  # without the guard the command itself prints the line
                self.say()
            with contextlib.suppress(AttributeError, OSError, ValueError):  # a stream or its reader is gone
                sys.stdout.flush()
            end_at_once(EXIT_INTERRUPTED)

    def say(self) -> None:
        """Prints the line, once."""
        if not self._said.acquire(blocking=False):
            return
        text = f"{_SHOW_CURSOR}\n{_LINE}" if os.isatty(2) else _LINE
        with contextlib.suppress(OSError):  # stderr may be closed
            if select.select([], [2], [], 0)[1]:  # a terminal that was stopped would block
                os.write(2, text.encode())

    @property
    def said(self) -> bool:
        """True once the line was printed."""
        return self._said.locked()

    def end(self) -> NoReturn:
        """Ends the process now; any thread may call it."""
        self.say()
        end_at_once(EXIT_INTERRUPTED)

    @contextlib.contextmanager
    def deferring(self) -> Iterator[None]:
        """Leaves the first interrupt in the block to the block's own handler."""
        self._deferring, self._deferred = True, False
        try:
            yield
        finally:
            self._deferring = False

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._over:
            self.end()
        if self.received:
            return
        if _imports_native_module(frame):
            signal.setitimer(signal.ITIMER_REAL, _RETRY)
            return
        self.received = True
        raise KeyboardInterrupt

    def _watch(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the other threads
        self._wait(None)
        self._wait(_GRACE)
        self.end()

    def _wait(self, seconds: float | None) -> None:
        """Waits until an interrupt comes that is not deferred, or time is over."""
        end = None if seconds is None else time.monotonic() + seconds
        while select.select([self._read], [], [], None if end is None else max(0.0, end - time.monotonic()))[0]:
            if os.read(self._read, 1)[0] == signal.SIGINT:
                if not self._deferring:
                    return
                if self._deferred:
                    self.end()
                self._deferred = True

    @staticmethod
    def _ignore() -> None:
        """Ignores SIGINT in the last steps of the interpreter, which would be killed by it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def _imports_native_module(frame: FrameType | None) -> bool:
    """Returns whether a frame runs below the native code that initializes a module."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _LOADER and code.co_qualname in _NATIVE:
            return True
        frame = frame.f_back
    return False


def _above_streams(descriptor: int) -> int:
    """Returns a copy of a descriptor, which is closed, above those of streams that the caller may have closed."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return copy


def _has_terminal() -> bool:
    """Returns whether the process is in the foreground of a terminal, so that Ctrl-C is for it."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


_GUARD: Final = _Guard()


def run_program(module: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the function ``main`` of a module as the program of this process, with the guard, and exits.

    Args:
        module: name of the module, which the guard sees imported.
        arguments: arguments of ``main``, which returns the exit code; those of the process if None.
    """
    try:
        _GUARD.start()
        code = importlib.import_module(module).main(arguments)
    except KeyboardInterrupt:
        end_interrupted()
        _GUARD.say()
        code = EXIT_INTERRUPTED
    except SystemExit as end:
        code = end.code
    _GUARD.finish(code)
    sys.exit(code)


def received() -> bool:
    """Returns whether the program was interrupted."""
    return _GUARD.received


def say_interrupted() -> None:
    """Prints the line of an interrupted program, once."""
    _GUARD.say()


def end_interrupted() -> bool:
    """Ends an interrupted program that has the guard; without one returns whether the line was printed.

    Call it while the KeyboardInterrupt is handled: its traceback holds objects of native code, which may be freed in an
    order that crashes.
    """
    if _GUARD.started:
        _GUARD.finish(EXIT_INTERRUPTED)
    return _GUARD.said


def first_deferred() -> contextlib.AbstractContextManager[None]:
    """Leaves the first interrupt in the block to the block's own handler; the second one ends the program."""
    return _GUARD.deferring()


@contextlib.contextmanager
def other_handlers() -> Iterator[None]:
    """Lets the block have signal handlers of its own, as those of an event loop, and takes the signals back then."""
    try:
        yield
    finally:
        _GUARD.take()
