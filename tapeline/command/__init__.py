"""The ``tapeline`` command and its subcommands: parse flags, call the library, print."""

from tapeline.command._main import main
from tapeline.command._program import COMMANDS, command_of, load_command, run_command

__all__ = ["COMMANDS", "command_of", "load_command", "main", "run_command"]
