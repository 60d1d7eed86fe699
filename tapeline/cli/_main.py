"""Start and end of every program: flags, errors for a person, exit codes."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from absl import app, flags

from lang_core import InputError, TapelineError, VerificationError
from tapeline.cli._say import say_error

EXIT_INPUT: Final = 2
"""Exit code of wrong input."""
EXIT_VERIFICATION: Final = 3
EXIT_OTHER: Final = 1
"""Exit code of a failure that is neither wrong input nor a failed verification."""
EXIT_INTERRUPTED: Final = 130


def run(main: Callable[[], None]) -> NoReturn:
    """Parses the flags, runs ``main`` and exits: 0 done, 2 the input is wrong, 3 verification failed, 1 else."""
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

    def failed(error: BaseException, code: int) -> int:
        say_error(f"{message(error)}")
        return code

    try:
        main()
        sys.stdout.flush()
    except InputError as error:
        return failed(error, EXIT_INPUT)
    except VerificationError as error:
        return failed(error, EXIT_VERIFICATION)
    except TapelineError as error:
        return failed(error, EXIT_OTHER)
    except KeyboardInterrupt:
        say_error("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone; it has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OTHER
    except Exception as error:  # noqa: BLE001 - the last word before the exit code
        traceback.print_exc()
        return failed(error, EXIT_OTHER)
    return 0


def user_path(path: str) -> Path:
    """Returns a path as the user means it: relative to where ``bazel run`` was called."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), path)


def output_file(option: str, path: str | None) -> Path | None:
    """Returns the file that an option names to be written, checked before the work whose result it takes.

    Raises:
        InputError: the file cannot be written.
    """
    if path is None:
        return None
    check_writable(option, user_path(path), path)
    return user_path(path)


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
