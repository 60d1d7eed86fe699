"""Export into the user's cache in a process of its own: its memory is not the caller's, and it can be ended."""

import contextlib
import fcntl
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Protocol

import tapeline
from lang_core import ProcessError, python_command
from tapeline import exporting
from tapeline.bundle import keep_cached
from tapeline.cli import Progress, ProgressEvent
from tapeline.interrupts import kill_descendants

_PROGRAM: Final = """import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from tapeline.command._export_process import answer_export
answer_export()
"""
_NICE: Final = 10  # of a verification beside a model that answers
_PATIENCE: Final = 0.7  # seconds that the process has to remove what it has begun


class Follower(Protocol):
    """Receiver of a verification that goes on after a bundle was returned."""

    def begin(self) -> None:
        """Receives the beginning, before the bundle is returned."""
        ...

    def end(self, error: BaseException | None) -> None:
        """Receives the end, in a thread of its own: the error, or None if the bundle is verified."""
        ...


@dataclass(frozen=True, slots=True)
class Unverified:
    """Message of the export: a bundle that answers, and that is being verified.

    Attributes:
        path: directory of the bundle, which the receiver removes.
    """

    path: Path


class ExportProcess:
    """``cached_export`` in a process of its own."""

    def __init__(self) -> None:
        """Begins without one."""
        self._lock: Final = threading.Lock()
        self._processes: Final[set[subprocess.Popen[bytes]]] = set()
        self._ended = False

    def run(
        self, model: str, progress: Progress, options: Mapping[str, Any], follower: Follower | None = None
    ) -> tapeline.Bundle:
        """Returns the bundle of a model.

        Args:
            model: as for ``cached_export``.
            progress: receives steps, warnings and bytes.
            options: further arguments of ``cached_export``, by name.
            follower: None waits for the verification. Otherwise a bundle that has to be exported is returned before it
                is verified, as links that are removed with the ``Bundle``. The follower receives nothing if the bundle
                is verified already, and not the end if the export is ended.

        Raises:
            ProcessError: the process was ended.
            TapelineError: the export's.
        """
        process = self._start()
        try:
            assert process.stdin
            assert process.stdout
            with contextlib.suppress(BrokenPipeError):  # that it has died is said below
                job = model, dict(options), follower is not None
                process.stdin.write(pickle.dumps(sys.path) + pickle.dumps(job))
                process.stdin.flush()
            outcome = _outcome(process.stdout, progress)
            if isinstance(outcome, Unverified):
                assert follower is not None
                bundle = _owned(outcome.path)
                if self._ended:
                    raise self._death(model, 0)
                follower.begin()
                arguments = process, model, progress, follower
                threading.Thread(target=self._follow, args=arguments, name="verification", daemon=True).start()
                return bundle
        except BaseException:
            self._end(process)
            _close(process)
            raise
        return self._finish(process, model, outcome)

    def end(self) -> None:
        """Ends the export and its children, now and later; any thread may call it."""
        with self._lock:
            self._ended = True
            processes = [*self._processes]
        for process in processes:
            self._end(process)

    def _follow(self, process: subprocess.Popen[bytes], model: str, progress: Progress, follower: Follower) -> None:
        """Waits for the verification of a bundle that was returned already."""
        error: BaseException | None = None
        try:
            assert process.stdout
            self._finish(process, model, _outcome(process.stdout, progress))
        except Exception as raised:  # noqa: BLE001 - the receiver says it
            error = raised
        if not self._ended:
            follower.end(error)

    def _finish(self, process: subprocess.Popen[bytes], model: str, outcome: object) -> tapeline.Bundle:
        """Returns the bundle of a process that has said its outcome.

        Raises:
            ProcessError: the process has died.
            TapelineError: the export's.
        """
        try:
            bundle = tapeline.Bundle(outcome) if isinstance(outcome, Path) else None
            if bundle is not None:
                keep_cached(bundle)  # until it ends the process keeps it, too
            process.wait()
        except BaseException:
            self._end(process)
            raise
        finally:
            _close(process)
        with self._lock:
            self._processes.discard(process)
        if isinstance(outcome, BaseException):
            raise outcome
        if bundle is None:
            raise self._death(model, process.returncode)
        return bundle

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._processes.discard(process)
        if process.poll() is not None:
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
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            self._processes.add(process)
            return process

    def _death(self, model: str, status: int) -> ProcessError:
        if self._ended:
            return ProcessError(f"the export of {model} was ended: ask again")
        hint = "; the machine may have run out of memory" if status == -signal.SIGKILL else ""
        return ProcessError(f"the process that exported {model} ended with {status}{hint}: its last words stand above")


def _close(process: subprocess.Popen[bytes]) -> None:
    """Closes the pipes of a process that has ended."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _owned(path: Path) -> tapeline.Bundle:
    """Returns the bundle of a directory, which is removed with the object, or when this process ends.

    The directory is locked until then, so that other processes do not take it for an abandoned one.
    """
    try:
        bundle = tapeline.Bundle(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    weakref.finalize(bundle, os.close, descriptor)
    weakref.finalize(bundle, shutil.rmtree, path, ignore_errors=True)
    return bundle


def _outcome(answers: IO[bytes], progress: Progress) -> Path | Unverified | BaseException | None:
    """Passes progress on, and returns the bundle or the export's error; None of a process that has died."""
    while True:
        try:
            answer = pickle.load(answers)  # noqa: S301 - of our own child
        except (EOFError, pickle.UnpicklingError):
            return None
        if not isinstance(answer, ProgressEvent):
            return answer
        progress(answer)


def answer_export() -> None:
    """Runs the export on stdin in the child, and writes progress and outcome to stdout, other output to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    model, options, early = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our own parent
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def send(answer: Any) -> None:
        pickle.dump(answer, answers)
        answers.flush()

    def show(path: Path) -> None:
        send(Unverified(path))
        os.nice(_NICE)

    try:
        bundle = exporting.cached_export_early(
            model, show if early else None, progress=send, **options
        )  # kept until this process ends
        outcome = bundle.path
    except Exception as error:  # noqa: BLE001 - the parent raises it
        outcome = error
    send(outcome)


def _end_with_parent() -> None:
    """Ends this process and those that it has started once the parent is gone, with which stdin ends."""
    os.read(0, 1)
    kill_descendants(os.getpid())
    os.killpg(0, signal.SIGKILL)
