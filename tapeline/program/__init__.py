"""The ``tapeline`` command as a program: ``tapeline.command``, which Ctrl-C ends from the first import on."""

from collections.abc import Sequence
from typing import NoReturn

from tapeline.interrupts import run_program

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs ``tapeline`` with these arguments, those of the process if None, and exits."""
    run_program("tapeline.command", arguments)
