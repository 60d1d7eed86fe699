"""Start and end of every program: flags, errors for a person, exit codes."""

import contextlib
import errno
import os
import select
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final, NoReturn, TextIO

from absl import app, flags

from lang_core import InputError, TapelineError, VerificationError
from tapeline.cli._say import say_error
from tapeline.interrupts import EXIT_INTERRUPTED, end_interrupted, received

EXIT_INPUT: Final = 2
"""Exit code of wrong input."""
EXIT_VERIFICATION: Final = 3
EXIT_OTHER: Final = 1
"""Exit code of a failure that is neither wrong input nor a failed verification."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run(main: Callable[[], None]) -> NoReturn:
    """Parses the flags, runs ``main`` and exits: 0 done, 2 the input is wrong, 3 verification failed, 1 else."""
    open_streams()
    app.run(lambda _: sys.exit(guarded(main)), flags_parser=_parse)


def _parse(argv: Sequence[str]) -> list[str]:
    try:
        rest = flags.FLAGS(list(argv))
    except flags.Error as error:
        say_error(f"{error}\nPass --help for the flags.")
        sys.exit(EXIT_INPUT)
    except SystemExit:  # --help has been answered
        sys.exit(0)
    if rest[1:]:
        say_error(f"unexpected arguments {' '.join(rest[1:])}: every option is a --flag")
        sys.exit(EXIT_INPUT)
    return rest


def guarded(main: Callable[[], None], message: Callable[[BaseException], str] = str) -> int:
    """Runs ``main``, prints its error as one line on stderr and returns the exit code.

    Args:
        main: the program.
        message: text of an error; a command writes options as flags.
    """
    try:
        return _exit_code(main, message)
    except BrokenPipeError:  # stderr has no reader either
        return EXIT_OTHER
    finally:
        _leave_closed_streams()


def _exit_code(main: Callable[[], None], message: Callable[[BaseException], str]) -> int:
    def failed(error: BaseException, code: int) -> int:
        if received():  # the interrupt was the cause, in the words of what it met
            return interrupted()
        say_error(f"{message(error)}")
        return code

    def interrupted() -> int:
        if not end_interrupted():
            say_error("interrupted")
        return EXIT_INTERRUPTED

    try:
        main()
        _flush()
    except InputError as error:
        return failed(error, EXIT_INPUT)
    except VerificationError as error:
        return failed(error, EXIT_VERIFICATION)
    except TapelineError as error:
        return failed(error, EXIT_OTHER)
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:  # noqa: BLE001 - the last word before the exit code
        if isinstance(error, BrokenPipeError) and any(_is_closed(stream) for stream in (sys.stdout, sys.stderr)):
            return EXIT_OTHER  # the reader of our output has gone; it has what it wanted
        unwritten = _unwritten(error)
        if unwritten is not None:
            return failed(unwritten, EXIT_INPUT)
        if not received():
            traceback.print_exc()
        return failed(error, EXIT_OTHER)
    return 0


def _unwritten(error: BaseException) -> InputError | None:
    """Returns the error for a person of a file that cannot be written; None of any other error."""
    if not isinstance(error, OSError):
        return None
    if error.errno in _FULL:
        return InputError(
            f"cannot write {error.filename or 'a file'}: {error.strerror}: make room, or raise the limit of file sizes "
            "(ulimit -f)"
        )
    if "temporary directory" in str(error.strerror):  # tempfile wrote a probe into each
        return InputError(f"{error.strerror}: make room there, or set TMPDIR to a directory that can be written")
    return None


def open_streams() -> None:
    """Opens stdout and stderr on nothing if the caller has closed them (``>&-``)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open until the end


def _flush() -> None:
    """Flushes stdout.

    Raises:
        InputError: the file behind stdout cannot be written.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard(sys.stdout)
        raise InputError(f"stdout cannot be written: {error.strerror}") from error


def _leave_closed_streams() -> None:
    """Discards the buffers of streams without a reader: Python would write it at the end, and fail."""
    for stream in (sys.stdout, sys.stderr):
        if _is_closed(stream):
            _discard(stream)


def _is_closed(stream: TextIO) -> bool:
    """Returns whether a stream is a pipe or a socket that nobody reads any more."""
    descriptor = _descriptor(stream)
    if descriptor is None:
        return False
    polled = select.poll()
    polled.register(descriptor, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in polled.poll(0))


def _discard(stream: TextIO) -> None:
    descriptor = _descriptor(stream)
    if descriptor is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _descriptor(stream: TextIO) -> int | None:
    """Returns a stream's file descriptor; None for a stream that is not a file, or closed."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def user_path(path: str) -> Path:
    """Returns a path as the user means it: relative to the directory in which ``bazel run`` was called."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), path)


def output_file(option: str, path: str | None) -> Path | None:
    """Returns the output file that an option names, checked before the work starts.

    Raises:
        InputError: the file cannot be written.
    """
    if path is None:
        return None
    check_writable(option, user_path(path), path)
    return user_path(path)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yields a file that takes the place of ``path`` when the block ends without an error: none is half written.

    Devices and pipes, and files in a directory that cannot be written, are written in place.
    """
    if (path.exists() and not path.is_file()) or not os.access(path.parent, os.W_OK):
        with path.open("wb") as file:
            yield file
        return
    target = path.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            yield file
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def check_writable(option: str, file: Path, text: str | None = None) -> None:
    """Checks that a file can be written.

    Args:
        option: name of the option, for the message.
        file: the file.
        text: the file as the user wrote it, for the message.

    Raises:
        InputError: the file cannot be written.
    """
    if file.is_dir() or not file.parent.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise InputError(
            f"{option}={text or file}: no file can be written there: choose another in a directory that exists"
        )
