"""Export into the user's cache in a process of its own: its memory is not the caller's, and it can be ended."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import tapeline
from lang_core import ProcessError, python_command
from tapeline.bundle import keep_cached
from tapeline.cli import Progress, ProgressEvent
from tapeline.interrupts import kill_descendants

_PROGRAM: Final = """import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from tapeline.command._export_process import answer_export
answer_export()
"""
_PATIENCE: Final = 0.7  # seconds that the process has to remove what it has begun


class ExportProcess:
    """``cached_export`` in a process of its own."""

    def __init__(self) -> None:
        """Begins without one."""
        self._lock: Final = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def run(self, model: str, progress: Progress, options: Mapping[str, Any]) -> tapeline.Bundle:
        """Returns the bundle of a model.

        Args:
            model: as for ``cached_export``.
            progress: receives steps, warnings and bytes.
            options: further arguments of ``cached_export``, by name.

        Raises:
            ProcessError: the process was ended.
            TapelineError: the export's.
        """
        with self._start() as process:
            assert process.stdin
            assert process.stdout
            try:
                with contextlib.suppress(BrokenPipeError):  # that it has died is said below
                    process.stdin.write(pickle.dumps(sys.path) + pickle.dumps((model, dict(options))))
                    process.stdin.flush()
                outcome = _outcome(process.stdout, progress)
                bundle = tapeline.Bundle(outcome) if isinstance(outcome, Path) else None
                if bundle is not None:
                    keep_cached(bundle)  # until it ends the process keeps it, too
                process.wait()
            except BaseException:
                self.end()
                raise
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome is None:
                raise self._death(model, process.returncode)
            assert bundle is not None
            return bundle

    def end(self) -> None:
        """Ends the export, now and later, with what it has started; any thread may call it."""
        with self._lock:
            self._ended = True
            process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
        kill_descendants(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def _start(self) -> subprocess.Popen[bytes]:
        command = python_command("-c", _PROGRAM)
        with self._lock:
            if self._ended:
                raise ProcessError("the export was ended before it began: ask again")
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            return self._process

    def _death(self, model: str, status: int) -> ProcessError:
        if self._ended:
            return ProcessError(f"the export of {model} was ended: ask again")
        hint = "; the machine may have run out of memory" if status == -signal.SIGKILL else ""
        return ProcessError(f"the process that exported {model} ended with {status}{hint}: its last words stand above")


def _outcome(answers: IO[bytes], progress: Progress) -> Path | BaseException | None:
    """Passes progress on, and returns the bundle's path or the export's error; None of a process that has died."""
    while True:
        try:
            answer = pickle.load(answers)  # noqa: S301 - of our own child
        except (EOFError, pickle.UnpicklingError):
            return None
        if not isinstance(answer, ProgressEvent):
            return answer
        progress(answer)


def answer_export() -> None:
    """Exports, in the child, what stdin says, and writes progress and outcome to stdout; other output is stderr's."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    model, options = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our own parent
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def send(answer: Any) -> None:
        pickle.dump(answer, answers)
        answers.flush()

    try:
        bundle = tapeline.cached_export(model, progress=send, **options)  # which this process keeps until it ends
        outcome = bundle.path
    except Exception as error:  # noqa: BLE001 - the parent raises it
        outcome = error
    send(outcome)


def _end_with_parent() -> None:
    """Ends this process and those that it has started once the parent is gone, with which stdin ends."""
    os.read(0, 1)
    kill_descendants(os.getpid())
    os.killpg(0, signal.SIGKILL)
