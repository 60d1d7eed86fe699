"""The ``tapeline`` command: ``tapeline COMMAND FLAGS``."""

import sys
from collections.abc import Sequence
from typing import Final

from lang_core import PluginError, load_plugins, near_names, some_of
from tapeline import cli
from tapeline.cli import EXIT_INPUT, EXIT_OTHER, guarded, open_streams, say_error, table
from tapeline.command._explanations import see_also
from tapeline.command._program import COMMANDS, run_command

_USAGE: Final = "usage: tapeline COMMAND [MODEL] [--flag=value ...]"
_SEE_HELP: Final = "tapeline --help lists the commands."
_HELP: Final = ("--help", "-h", "-help", "help")
_VERSION: Final = ("--version", "-V", "version")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs ``tapeline`` with these arguments, those of the process if None, and returns the exit code."""
    open_streams()
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["help"] and given[1:]:
        given = [given[1], "--help"]
    if not given or given[0] in _HELP:
        code = guarded(lambda: print(_overview(), file=sys.stdout if given else sys.stderr))
        return code if given else EXIT_INPUT
    if given[0] in _VERSION:
        return guarded(lambda: print(f"tapeline {cli.VERSION}"))
    if given[0] not in COMMANDS:
        near = near_names(given[0], COMMANDS)
        say_error(f"unknown command {given[0]!r}: expected one of {some_of(given[0], COMMANDS)}{near}\n{_SEE_HELP}")
        return EXIT_INPUT
    try:
        load_plugins()  # what they register can be named by flags
    except PluginError as error:
        say_error(f"{error}{see_also(error)}")
        return EXIT_OTHER
    return run_command(given[0], given[1:])


def _overview() -> str:
    rows = table(list(COMMANDS.items()))
    return "\n".join([_USAGE, "", "commands:", *rows, "", "tapeline COMMAND --help lists the flags of a command."])
