"""Runs one command: parses its flags, prints errors for a person, returns an exit code."""

import functools
import importlib
import os
import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

from absl import flags

from lang_core import InputError, OpError
from tapeline.cli import EXIT_INPUT, guarded, say_error, saying
from tapeline.command._arguments import (
    checked_values,
    from_environment,
    sorted_arguments,
    variable_of,
    with_operands,
)
from tapeline.command._explanations import see_also
from tapeline.command._flags import as_flags, shown_flags

COMMANDS: Final = {
    "export": "writes a verified bundle of a checkpoint",
    "generate": "generates text with a bundle",
    "chat": "chats with a model or a bundle",
    "run": "runs one entry point of a bundle on arrays",
    "serve": "serves bundles over HTTP with an OpenAI-compatible API",
    "embed": "embeds and compares texts",
    "rerank": "orders documents by how well they answer a query",
    "classify": "classifies texts, by a model's labels or your own",
    "tag": "tags names and other spans of texts",
    "answer": "answers a question with a span of a text",
    "fill": "fills the masks of texts",
    "transcribe": "transcribes audio files",
    "families": "lists the families of models that are supported",
    "inspect": "describes a bundle or a model",
    "compare": "compares two computations and reports where they first diverge",
    "convert": "writes a model as safetensors or a GGUF file, for other programs",
    "train": "fine-tunes a checkpoint on JAX",
    "launch": "runs a command in several processes, one device each",
    "tune": "shows and tunes configurations of kernels",
    "explain": "explains a kind of error",
    "doctor": "describes this machine, for bug reports",
    "completion": "writes a script that completes commands in a shell",
    "cache": "lists and clears the caches",
    "make-checkpoint": "writes a checkpoint with random weights",
}
"""The commands with a line of help each."""

# Every option of an export has its flag here, and messages of other commands name them too ("export with ...").
_OPTIONS_OF: Final = "export"


_REQUIRED_MESSAGE: Final = re.compile(r"Flag --(\w+) must have a value other than None")
_INDENT: Final = " " * 4
_REPEATS: Final = f";\n{_INDENT}repeat this option to specify a list of values"
_NO_DEFAULT: Final = re.compile(rf"\n{_INDENT}\(default: '\[\]'\)")
_FIRST_FLAG: Final = re.compile(r"--(\w+)")
_HELP: Final = frozenset({"-h", "--help", "-help", "--helpshort", "--helpfull"})


class Command(Protocol):
    """Module of one command.

    Attributes:
        FLAGS: its flags.
        POSITIONAL: name of a flag with a value that may stand without ``--name=``, and the values.
        OPERANDS: for each argument without a flag's name the flags that it may stand for, such as model and bundle.
        GIVEN: flags that are given before those of the user; a command without it has none.
        VARIABLES: receives the names of flags that the environment set; a command without it does not read the
            environment.
        REST: receives the arguments behind the flags; a command without it takes none.
        EVERY_RANK: True if all ranks of a launch run the command; else rank 0 runs it, and the others follow its calls.
    """

    FLAGS: flags.FlagValues
    POSITIONAL: tuple[str, Sequence[str]]
    OPERANDS: Sequence[tuple[str, ...]]
    VARIABLES: list[str]
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
        return guarded(lambda: print(_help(name, command)))
    code = parse_command(name, arguments)
    if code is not None:
        return code
    with saying(functools.partial(_with_flags, command)):
        return guarded(command.main, functools.partial(_message, command))


def parse_command(name: str, arguments: Sequence[str]) -> int | None:
    """Parses a command's flags; prints an error and returns an exit code if they are wrong, else None."""
    command: Command = load_command(name)
    values = command.FLAGS
    for flag in values:
        values[flag].unparse()
    try:
        own = sorted_arguments(values, [*getattr(command, "GIVEN", ()), *arguments], passes_on=hasattr(command, "REST"))
        places = _places(command)
        named = checked_values(values, with_operands(values, own, places))
        variables = from_environment(values, named, os.environ, places) if hasattr(command, "VARIABLES") else []
        values(["tapeline", *(f"--{name}={value}" for name, value in [*variables, *named])])
    except (InputError, flags.Error) as error:
        say_error(f"{_missing(values, error)}\nPass --help for the flags.")
        return EXIT_INPUT
    if hasattr(command, "REST"):
        command.REST[:] = own.rest
    if hasattr(command, "VARIABLES"):
        command.VARIABLES[:] = [name for name, _ in variables]
    return None


def _places(command: Command) -> Sequence[tuple[str, ...]]:
    """Returns the flags that arguments without a flag's name stand for."""
    positional = getattr(command, "POSITIONAL", None)
    return getattr(command, "OPERANDS", ()) if positional is None else ((positional[0],),)


def _missing(values: flags.FlagValues, error: Exception) -> str:
    """Returns an error's text; of a flag that must be given, the flag and its help."""
    match = _REQUIRED_MESSAGE.search(str(error))
    return f"give --{match[1]}: {values[match[1]].help}" if match else str(error)


def _asks_for_help(arguments: Sequence[str]) -> bool:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return not _HELP.isdisjoint(arguments[:end])


def _help(name: str, command: Command) -> str:
    shown = flags.FlagValues()
    for flag in shown_flags(command.FLAGS):  # flags that commands share are defined in another module
        shown[flag.name] = flag
        shown.register_flag_by_module(command.FLAGS.find_module_defining_flag(flag.name) or "", flag)
    texts = [_plain(shown.module_help(module).partition(":\n")[2]) for module in shown.flags_by_module_dict()]
    return "\n".join([(command.__doc__ or "").strip(), "", f"usage: {_usage(name, command)}", "", "Flags:", *texts])


def _plain(text: str) -> str:
    """Returns absl's help of flags in plain words, without empty lists as defaults."""
    return _NO_DEFAULT.sub("", text.replace(_REPEATS, f"\n{_INDENT}(may be repeated)"))


def _usage(name: str, command: Command) -> str:
    """Returns the form of a call: the command, arguments without a flag's name, flags."""
    operands = [f"[{'|'.join(names).upper()}]" for names in _places(command)]
    rest = ["-- COMMAND ..."] if hasattr(command, "REST") else []
    return " ".join(["tapeline", name, *operands, "[--flag=value ...]", *rest])


def _message(command: Command, error: BaseException) -> str:
    """Returns an error's text with options written as flags, and the page that explains it."""
    text = str(error)
    if not isinstance(error, OpError):  # attributes of an op are no options
        text = _with_variables(_with_flags(command, text), command)
    return text + see_also(error)


def _with_flags(command: Command, text: str) -> str:
    """Returns a text of the library with options written as flags."""
    if "`" not in text and "=" not in text:  # it names no option, and needs no other command's flags
        return text
    return as_flags(text, {*command.FLAGS, *load_command(_OPTIONS_OF).FLAGS})


def _with_variables(text: str, command: Command) -> str:
    """Writes a flag at the beginning of a message as the variable of the environment that set it."""
    match = _FIRST_FLAG.match(text)
    if match is None or match[1] not in getattr(command, "VARIABLES", ()):
        return text
    return variable_of(match[1]) + text[match.end() :]
