"""Writes a script that completes commands and flags in a shell.

completion bash > ~/.local/share/bash-completion/completions/tapeline
completion zsh > ~/.zfunc/_tapeline      (with ~/.zfunc in fpath)
completion fish > ~/.config/fish/completions/tapeline.fish
"""

import argparse
from typing import Final

import shtab
from absl import flags

from tapeline.command._flags import shown_flags
from tapeline.command._program import COMMANDS, Command, load_command

FLAGS: Final = flags.FlagValues()

_SHELLS: Final = ("bash", "zsh", "fish")
POSITIONAL: Final = ("shell", _SHELLS)

_SHELL: Final = flags.DEFINE_enum("shell", "bash", list(_SHELLS), "Shell.", flag_values=FLAGS)


def main() -> None:
    """Prints the script."""
    print(shtab.complete(_parser(), _SHELL.value), end="")


def _parser() -> argparse.ArgumentParser:
    """Returns the commands and their flags in the form that the script's generator reads."""
    parser = argparse.ArgumentParser("tapeline", add_help=False)
    commands = parser.add_subparsers()
    for name, line in COMMANDS.items():
        _add_flags(commands.add_parser(name, help=line, description=line, add_help=False), load_command(name))
    return parser


def _add_flags(parser: argparse.ArgumentParser, command: Command) -> None:
    positional, values = getattr(command, "POSITIONAL", ("", ()))
    if positional:
        parser.add_argument(positional, choices=values, nargs="?")
    for flag in shown_flags(command.FLAGS):
        text = " ".join((flag.help or "").split()).replace("%", "%%")
        if flag.boolean:
            parser.add_argument(f"--{flag.name}", f"--no{flag.name}", action="store_true", help=text)
        elif isinstance(flag, flags.EnumFlag):
            parser.add_argument(f"--{flag.name}", choices=flag.parser.enum_values, help=text)
        else:
            parser.add_argument(f"--{flag.name}", help=text).complete = shtab.FILE  # type: ignore[attr-defined]
