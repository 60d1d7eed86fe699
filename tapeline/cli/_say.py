"""Text on stdout and stderr: with colours on a terminal, plain elsewhere."""

import importlib
import sys
from typing import Any


def say(text: str) -> None:
    """Prints one line on stderr."""
    print(text, file=sys.stderr, flush=True)


def say_error(text: str) -> None:
    """Prints ``error: text`` on stderr."""
    if sys.stderr.isatty():
        _terminal().print_error(text, sys.stderr)
    else:
        print(f"error: {text}", file=sys.stderr)


def show(text: str) -> None:
    """Prints tables on stdout."""
    if sys.stdout.isatty():
        _terminal().print_facts(text, sys.stdout)
    else:
        print(text, end="")


def _terminal() -> Any:
    """Returns the module that draws on a terminal, whose import is slow."""
    return importlib.import_module("tapeline.cli._terminal")
