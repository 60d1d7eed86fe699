"""Runs one command: parses its flags, prints errors for a person, returns an exit code."""

import functools
import importlib
from collections.abc import Sequence
from typing import Any, Final, Protocol

from absl import flags

from lang_core import OpError
from tapeline.cli import EXIT_INPUT, guarded, say_error, user_path
from tapeline.command._explanations import see_also
from tapeline.command._flags import as_flags

COMMANDS: Final = {
    "export": "writes a verified bundle of a checkpoint",
    "generate": "generates text with a bundle",
    "chat": "talks with a model or a bundle",
    "run": "runs one entry point of a bundle on arrays",
    "serve": "serves bundles over HTTP, as OpenAI's API has it",
    "embed": "embeds sentences and compares them",
    "rerank": "orders documents by how well they answer a query",
    "transcribe": "turns sound into text",
    "inspect": "shows what is in a bundle or a model",
    "compare": "names where two computations first diverge",
    "train": "fine-tunes a checkpoint on JAX",
    "launch": "runs a command in several processes, one device each",
    "tune": "shows and tunes configurations of kernels",
    "explain": "explains a kind of error",
    "doctor": "says what this machine has, for an issue",
    "completion": "writes a script that completes commands in a shell",
    "cache": "lists and clears what is kept between runs",
    "make-checkpoint": "writes a checkpoint with random weights",
}
"""The commands with a line of help each."""

# Every option of an export has its flag here, and messages of other commands name them too ("export with ...").
_OPTIONS_OF: Final = "export"


_HELP: Final = frozenset({"--help", "-help", "--helpshort", "--helpfull"})


class Command(Protocol):
    """Module of one command.

    Attributes:
        FLAGS: its flags.
        POSITIONAL: name of the flag whose value may stand first without ``--name=``, and the values.
        GIVEN: flags that are given before those of the user; a command without it has none.
        REST: what stands behind the flags is put here; a command without it takes nothing more.
        EVERY_RANK: True where all ranks of a launch run the command; else rank 0 does, whose calls the others follow.
    """

    FLAGS: flags.FlagValues
    POSITIONAL: tuple[str, Sequence[str]]
    GIVEN: Sequence[str]
    REST: list[str]
    EVERY_RANK: bool
    __doc__: str | None
    __name__: str

    def main(self) -> None:
        """Runs the command with the flags that were parsed."""
        ...


def load_command(name: str) -> Any:
    """Returns the module of a command, which is imported when it is first asked for."""
    return importlib.import_module(f"tapeline.command._{name.replace('-', '_')}")


def run_command(name: str, arguments: Sequence[str]) -> int:
    """Runs a command and returns the exit code.

    Args:
        name: a key of ``COMMANDS``.
        arguments: flags, without the command's name.

    Returns:
        0 done, 2 wrong input, 3 verification failed, 130 interrupted, 1 anything else.
    """
    command = load_command(name)
    if _asks_for_help(arguments):
        print(_help(command))
        return 0
    code = parse_command(name, arguments)
    if code is not None:
        return code
    return guarded(command.main, functools.partial(_message, command))


def parse_command(name: str, arguments: Sequence[str]) -> int | None:
    """Parses a command's flags, prints what is wrong with them, and returns an exit code then; else None."""
    command: Command = load_command(name)
    values = command.FLAGS
    for flag in values:
        values[flag].unparse()
    try:
        rest = values(["tapeline", *getattr(command, "GIVEN", ()), *_named(command, arguments)])
    except flags.Error as error:
        say_error(f"{error}\nPass --help for the flags.")
        return EXIT_INPUT
    if hasattr(command, "REST"):
        command.REST[:] = rest[1:]
    elif rest[1:]:
        say_error(f"unexpected arguments {' '.join(rest[1:])}: every option is a --flag{_as_flag(command, rest[1:])}")
        return EXIT_INPUT
    return None


def _as_flag(command: Command, rest: Sequence[str]) -> str:
    """Returns a lone argument as the flag that is the command's first, a model or a bundle; empty otherwise."""
    if len(rest) != 1:
        return ""
    names = ("bundle", "model") if (user_path(rest[0]) / "kernel_config.json").is_file() else ("model", "bundle")
    first = next((name for name in names if name in command.FLAGS), None)
    return "" if first is None else f"; did you mean --{first}={rest[0]}?"


def _asks_for_help(arguments: Sequence[str]) -> bool:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:1] == ["-h"] or not _HELP.isdisjoint(arguments[:end])


def _named(command: Command, arguments: Sequence[str]) -> list[str]:
    """Gives a first argument without a flag's name that name; the flag refuses values that it does not have."""
    name, _ = getattr(command, "POSITIONAL", ("", ()))
    if name and arguments and not arguments[0].startswith("-"):
        return [f"--{name}={arguments[0]}", *arguments[1:]]
    return list(arguments)


def _help(command: Command) -> str:
    modules = command.FLAGS.flags_by_module_dict()  # flags that commands share are defined in another module
    texts = [command.FLAGS.module_help(module).partition(":\n")[2] for module in modules]
    return "\n".join([(command.__doc__ or "").strip(), "", "Flags:", *texts])


def _message(command: Command, error: BaseException) -> str:
    """Returns an error's text with options written as flags, and where it is explained."""
    text = str(error)
    if not isinstance(error, OpError):  # attributes of an op are no options
        text = as_flags(text, {*command.FLAGS, *load_command(_OPTIONS_OF).FLAGS})
    return text + see_also(error)
