"""Command of a child process that runs Python."""

import sys


def python_command(*arguments: str) -> list[str]:
    """Returns the command that runs this interpreter with these arguments, as ``-c`` and a program.

    Modules of the working directory are not imported (``-P``): it may hold a ``pickle.py`` of somebody else.
    """
    return [sys.executable, "-P", *(["-S"] if sys.flags.no_site else []), *arguments]
