"""Arguments of a command as users write them, turned into the flags that the command defines.

A hyphen stands for an underscore, ``--no-x`` for ``--nox``, ``--json`` for ``--format=json``. A model or a bundle may
stand without its flag. Values of a choice are taken in either case, and ``float16`` is ``f16``. Help and documents show
the defined names alone.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from absl import flags

import lang_core
from lang_core import InputError, near_names, some_of
from tapeline.cli import user_path
from tapeline.command._flags import FORMER

ENVIRONMENT_PREFIX: Final = "TAPELINE_"
"""Prefix of the variables of the environment that stand for flags."""

TEXTS: Final = frozenset({"document", "prompt", "query", "stop", "system", "text"})
"""Flags whose value is a text, which may be empty."""

_BUNDLE_FILE: Final = "kernel_config.json"
_ABSL: Final = frozenset({"undefok"})  # flags of absl itself, beside --flagfile, which is expanded before
_NEAR: Final = 5
_MOST_CHOICES: Final = 12  # that a message lists
_TRUTHS: Final[Mapping[str, str]] = {
    "true": "true",
    "yes": "true",
    "on": "true",
    "1": "true",
    "false": "false",
    "no": "false",
    "off": "false",
    "0": "false",
}


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of a command, sorted.

    Attributes:
        flags: names and values of flags, in their order.
        operands: arguments without the name of a flag.
        rest: arguments behind ``--`` of a command that passes them on.
    """

    flags: list[tuple[str, str]] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)

    def as_flags(self) -> list[str]:
        """Returns the flags as absl reads them."""
        return [f"--{name}={value}" for name, value in self.flags]


def sorted_arguments(values: flags.FlagValues, words: Sequence[str], *, passes_on: bool = False) -> Arguments:
    """Sorts arguments into flags and operands.

    Args:
        values: flags that the command defines.
        words: arguments as they were typed.
        passes_on: True if the command passes on everything behind its own flags.

    Raises:
        InputError: a flag is unknown, or lacks its value.
    """
    arguments = Arguments()
    remaining = list(values.read_flags_from_files(list(words), force_gnu=not passes_on))
    while remaining:
        word = remaining.pop(0)
        if word == "--":
            (arguments.rest if passes_on else arguments.operands).extend(remaining)
            break
        if not _is_flag(word):
            if passes_on:
                arguments.rest.extend([word, *remaining])
                break
            arguments.operands.append(word)
            continue
        typed, has_value, value = word.partition("=")
        name, given = _flag_named(values, typed)
        if name in _ABSL:
            given = value if has_value else (remaining.pop(0) if remaining else "")
        elif given is not None:
            if has_value:
                raise InputError(f"{word}: {typed} takes no value: leave out ={value}")
        elif has_value:
            given = value
        elif values[name].boolean:
            given = "true"
        else:
            given = _next_value(values, typed, remaining)
        arguments.flags.append((name, given))
    return arguments


def with_operands(
    values: flags.FlagValues, arguments: Arguments, places: Sequence[tuple[str, ...]]
) -> list[tuple[str, str]]:
    """Returns the flags of the operands, followed by the other flags.

    Args:
        values: flags that the command defines.
        arguments: the sorted arguments.
        places: for each operand the flags that it may stand for: of ``model`` and ``bundle``, ``bundle`` if the operand
            is the directory of one.

    Raises:
        InputError: there are too many operands, or a flag is given in both forms.
    """
    named = {known for known, _ in arguments.flags if known in values and not _is_multi(values[known])}
    places = [place for place in places if named.isdisjoint(place)] or places  # DIR FILE, or --bundle=DIR FILE
    placed: list[tuple[str, str]] = []
    for number, operand in enumerate(arguments.operands):
        name = _operand_flag(places[min(number, len(places) - 1)], operand) if places else None
        repeats = name is not None and placed and placed[-1][0] == name and _is_multi(values[name])
        if name is None or (number >= len(places) and not repeats):
            raise InputError(_unexpected(values, arguments.operands[number:]))
        others = [(known, value) for known, value in arguments.flags if known in places[min(number, len(places) - 1)]]
        if others and not (_is_multi(values[name]) and others[0][0] == name):
            known, value = others[0]
            hint = _text_flag(values)
            raise InputError(
                f"unexpected arguments {operand}: --{known}={value} is given too: leave one of them out{hint}"
            )
        placed.append((name, operand))
    return [*placed, *arguments.flags]


def checked_values(values: flags.FlagValues, named: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns flags with their values in the form in which the command defines them.

    Raises:
        InputError: a value is empty, or is not one of the flag's.
    """
    return [
        (name, value if name in _ABSL else _checked(values[name], value, f"--{name}={value}")) for name, value in named
    ]


def from_environment(
    values: flags.FlagValues,
    named: Sequence[tuple[str, str]],
    environment: Mapping[str, str],
    exclusive: Sequence[tuple[str, ...]],
) -> list[tuple[str, str]]:
    """Returns flags that variables of the environment set and the command line does not.

    The flag ``max_waiting`` is set by ``TAPELINE_MAX_WAITING``. An empty variable counts as none. Values of a flag that
    may be repeated are separated as in ``PATH``.

    Args:
        values: flags that the command defines.
        named: flags of the command line.
        environment: variables.
        exclusive: groups of flags that exclude each other: one on the command line outdoes the variables of all.

    Raises:
        InputError: a variable's value is not one of the flag's.
    """
    outdone = {name for name, _ in named}
    outdone |= {other for group in exclusive for other in group if not outdone.isdisjoint(group)}
    variables: list[tuple[str, str]] = []
    for name in values:
        variables_of = [variable_of(name), *(variable_of(old) for old, new in FORMER.items() if new == name)]
        variable = next((variable for variable in variables_of if environment.get(variable)), variables_of[0])
        text = environment.get(variable, "")
        if text and name not in outdone:
            parts = [part for part in text.split(os.pathsep) if part] if _is_multi(values[name]) else [text]
            variables += [(name, _checked(values[name], part, f"{variable}={part}")) for part in parts]
    return variables


def variable_of(name: str) -> str:
    """Returns the variable of the environment that stands for a flag.

    >>> variable_of("max_waiting")
    'TAPELINE_MAX_WAITING'
    """
    return f"{ENVIRONMENT_PREFIX}{name.upper()}"


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _flag_named(values: flags.FlagValues, typed: str) -> tuple[str, str | None]:
    """Returns a flag's name, and its value if the name alone says it.

    Raises:
        InputError: the flag does not exist.
    """
    name = typed.removeprefix("-").removeprefix("-").replace("-", "_")
    if FORMER.get(name, "") in values:
        name = FORMER[name]
    if name in values or name in _ABSL:
        return name, None
    for prefix in ("no_", "no"):
        positive = name.removeprefix(prefix)
        if positive != name and positive in values and values[positive].boolean:
            return positive, "false"
    if name == "json" and "json" in _choices(values, "format"):
        return "format", "json"
    if name == "model" and "bundle" in values:
        raise InputError(
            f"unknown flag {typed}: name a bundle, which `tapeline export MODEL` writes, with --bundle=DIR"
        )
    raise InputError(f"unknown flag {typed}{_near_flags(values, name)}")


def _near_flags(values: flags.FlagValues, name: str) -> str:
    """Returns a hint at flags that a name may stand for; empty if none is near."""
    begun = [known for known in values if len(name) > 1 and known.startswith(name)]
    if begun:
        return f"; did you mean {' or '.join(f'--{known}' for known in begun[:_NEAR])}?"
    aliases = ["json"] if "json" in _choices(values, "format") else []
    return near_names(name, [*values, *aliases]).replace(" '", " --").replace("'", "")


def _next_value(values: flags.FlagValues, typed: str, remaining: list[str]) -> str:
    """Takes the value of a flag from the arguments that follow it.

    Raises:
        InputError: there is none, or the next one is another flag.
    """
    if not remaining:
        raise InputError(f"{typed}: expected a value: write {typed}=VALUE")
    value = remaining[0]
    if value.startswith("--") and value != "--":
        try:
            _flag_named(values, value.partition("=")[0])
        except InputError:
            return remaining.pop(0)  # a text that begins with hyphens
        raise InputError(f"{typed}: expected a value, found the flag {value}: write {typed}=VALUE")
    return remaining.pop(0)


def _operand_flag(names: tuple[str, ...], operand: str) -> str:
    if "bundle" in names and (user_path(operand) / _BUNDLE_FILE).is_file():
        return "bundle"
    return names[0]


def _unexpected(values: flags.FlagValues, words: Sequence[str]) -> str:
    text = f"unexpected arguments {' '.join(words)}: every option is a --flag"
    if words[0].lower() in _TRUTHS:
        return f"{text}; give true or false with =, such as --flag={words[0]}"
    return text + _text_flag(values)


def _text_flag(values: flags.FlagValues) -> str:
    """Returns a hint at the flag for texts; empty if the command has none."""
    texts = [name for name in ("prompt", "text", "document") if name in values]
    return f"; give a text with --{texts[0]}='...'" if texts else ""


def _checked(flag: flags.Flag[Any], value: str, title: str) -> str:
    """Returns a flag's value in the form in which it is defined.

    Args:
        flag: flag.
        value: value that was typed.
        title: the value with its flag or its variable, for the message.

    Raises:
        InputError: the value is empty, or none of the flag's.
    """
    if not value.strip() and not _may_be_empty(flag):
        raise InputError(f"{title}: the value is empty: give one, or leave {title.partition('=')[0]} out")
    value = _canonical(flag, value)
    try:
        flag.parser.parse(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{title}: {_expected(flag, value, str(error))}") from None
    return value


def _may_be_empty(flag: flags.Flag[Any]) -> bool:
    """Returns whether an empty value is one of the flag's: of a text, or the flag's default."""
    return flag.name in TEXTS or (not _is_multi(flag) and flag.default in ("", []))


def _canonical(flag: flags.Flag[Any], value: str) -> str:
    """Returns a choice in the flag's own spelling; other values unchanged."""
    folded = _folded(value)
    if flag.boolean:
        return _TRUTHS.get(folded, value)
    value = next((known for known in _choices_of(flag) if _folded(known) == folded), value)
    if flag.name == "dtype" and value not in _choices_of(flag):
        return lang_core.DTYPE_ALIASES.get(folded, value)
    return value


def _is_multi(flag: flags.Flag[Any]) -> bool:
    return isinstance(flag, flags.MultiFlag)


def _folded(value: str) -> str:
    return value.lower().replace("_", "-")


def _choices(values: flags.FlagValues, name: str) -> Sequence[str]:
    return _choices_of(values[name]) if name in values else ()


def _choices_of(flag: flags.Flag[Any]) -> Sequence[str]:
    return getattr(flag.parser, "enum_values", None) or ()


def _expected(flag: flags.Flag[Any], value: str, message: str) -> str:
    """Returns the values that a flag takes, in words; absl's message if it has them."""
    kind = flag.flag_type()
    choices = _choices_of(flag)
    if len(choices) > _MOST_CHOICES:
        return f"expected one of {some_of(value, choices)}{near_names(value, choices)}"
    if choices:
        return message + near_names(value, choices)
    if flag.boolean:
        return "expected true or false"
    try:
        float(value)
    except ValueError:
        return "expected a whole number" if "int" in kind else "expected a number" if "float" in kind else message
    return "expected a whole number" if "invalid literal" in message else message
