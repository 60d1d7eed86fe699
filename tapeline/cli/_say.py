"""Text on stdout and stderr: with colours on a terminal, plain elsewhere."""

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

_TRANSLATORS: Final[list[Callable[[str], str]]] = []  # of the commands that run, of all threads


def say(text: str) -> None:
    """Prints one line on stderr, as a command that runs spells its options."""
    for translate in _TRANSLATORS[-1:]:
        text = translate(text)
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def saying(translate: Callable[[str], str]) -> Iterator[None]:
    """Translates the lines that ``say`` prints during the block, in all threads.

    Args:
        translate: returns the text of a line of the library with options written as flags.
    """
    _TRANSLATORS.append(translate)
    try:
        yield
    finally:
        _TRANSLATORS.remove(translate)


def say_error(text: str) -> None:
    """Prints ``error: text`` on stderr, in one write: a reader may leave after the first line (``2>&1 | head -1``)."""
    if sys.stderr.isatty():
        _terminal().print_error(text, sys.stderr)
    else:
        sys.stderr.write(f"error: {text}\n")


def show(text: str) -> None:
    """Prints tables on stdout."""
    if sys.stdout.isatty():
        _terminal().print_facts(text, sys.stdout)
    else:
        print(text, end="")


def _terminal() -> Any:
    """Returns the module that draws on a terminal; its import is slow."""
    return importlib.import_module("tapeline.cli._terminal")
