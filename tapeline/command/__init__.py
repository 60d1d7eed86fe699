"""The ``tapeline`` command and its subcommands: parse flags, call the library, print."""

from tapeline.command._explanations import ERRORS_PAGE, EXPLANATIONS, see_also
from tapeline.command._flags import shown_flags
from tapeline.command._main import main
from tapeline.command._program import COMMANDS, load_command, run_command
