"""How every tool starts and ends: flags, errors a person can read, exit codes."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from absl import app, flags

from lang_core import InputError, TapelineError, VerificationError

EXIT_INPUT: Final = 2
EXIT_VERIFICATION: Final = 3
EXIT_OTHER: Final = 1


def run(main: Callable[[], None]) -> NoReturn:
    """Parses the flags, runs ``main`` and exits: 0 done, 2 the input is wrong, 3 verification failed, 1 else."""
    app.run(lambda _: sys.exit(_guarded(main)), flags_parser=_parse)


def _parse(argv: Sequence[str]) -> list[str]:
    try:
        rest = flags.FLAGS(list(argv))
    except flags.Error as error:
        print(f"error: {error}\nPass --help for the flags.", file=sys.stderr)
        sys.exit(EXIT_INPUT)
    except SystemExit:  # --help has been answered
        sys.exit(0)
    if rest[1:]:
        print(f"error: unexpected arguments {' '.join(rest[1:])}: every option is a --flag", file=sys.stderr)
        sys.exit(EXIT_INPUT)
    return rest


def _guarded(main: Callable[[], None]) -> int:
    try:
        main()
        sys.stdout.flush()
    except InputError as error:
        return _failed(error, EXIT_INPUT)
    except VerificationError as error:
        return _failed(error, EXIT_VERIFICATION)
    except TapelineError as error:
        return _failed(error, EXIT_OTHER)
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone; it has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OTHER
    except Exception as error:  # noqa: BLE001 - the last word before the exit code
        traceback.print_exc()
        return _failed(error, EXIT_OTHER)
    return 0


def _failed(error: BaseException, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code


def user_path(path: str) -> Path:
    """A path as the user means it: relative to where ``bazel run`` was called."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), path)


def output_file(flag: str, path: str | None) -> Path | None:
    """The file that a flag names to be written; checked before the work whose result it takes.

    Raises:
        InputError: it cannot be written.
    """
    if path is None:
        return None
    file = user_path(path)
    if file.is_dir() or not file.parent.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise InputError(f"--{flag}={path}: no file can be written there: choose another in a directory that exists")
    return file
