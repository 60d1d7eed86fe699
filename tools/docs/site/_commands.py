"""Reference of the commands: every flag, read from the commands themselves."""

import re
from collections.abc import Iterator

from absl import flags

from tapeline.command import COMMANDS, load_command, shown_flags

# absl writes the values of a choice before its help.
_CHOICES = re.compile(r"^<[^>]*>: ")
_HEADER = "| flag | default | |\n|---|---|---|"


def commands_reference() -> str:
    """Returns a section per command: what it does, and a table of its flags."""
    return "\n".join(line for name in COMMANDS for line in _command(name))


def _command(name: str) -> Iterator[str]:
    command = load_command(name)
    yield f"\n## {name}\n\n`tapeline {name}` {COMMANDS[name]}.\n"
    original = next(other for other in COMMANDS if load_command(other).FLAGS is command.FLAGS)
    if original != name:
        yield f"Its flags are those of [{original}](#{original}).\n"
        return
    yield _HEADER
    yield from (_row(flag) for flag in _flags(command.FLAGS))


def _flags(values: flags.FlagValues) -> list[flags.Flag]:
    return sorted(shown_flags(values), key=lambda flag: flag.name)


def _row(flag: flags.Flag) -> str:
    choices = getattr(flag, "enum_values", None) or getattr(flag.parser, "enum_values", None)
    known = f"One of {', '.join(f'`{choice}`' for choice in choices)}. " if choices else ""
    return f"| `--{flag.name}` | {_default(flag)} | {known}{_cell(_CHOICES.sub('', flag.help or ''))} |"


def _default(flag: flags.Flag) -> str:
    if flag.default is None or flag.default == "":
        return ""
    text = flag.default_as_str or str(flag.default)
    return f"`{_cell(text.strip(chr(39)))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
