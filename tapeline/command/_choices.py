"""Flags with a fixed set of values, some of which have other names too."""

from collections.abc import Sequence
from typing import Any

from absl import flags


class _AliasParser(flags.EnumParser):
    """Parser that takes further values, which help and messages do not show."""

    def __init__(self, choices: Sequence[str], further: Sequence[str]) -> None:
        super().__init__(choices)
        self._further = tuple(further)

    def parse(self, argument: str) -> str:
        return argument if argument in self._further else super().parse(argument)


def define_choice(
    name: str,
    default: str | None,
    choices: Sequence[str],
    text: str,
    *,
    further: Sequence[str],
    flag_values: flags.FlagValues,
) -> flags.FlagHolder[Any]:
    """Defines a flag with a fixed set of values.

    Args:
        name: name of the flag.
        default: its value if it is not given.
        choices: values, as help and messages list them.
        text: help.
        further: other values that the flag takes.
        flag_values: flags of the command.
    """
    flag = flags.EnumFlag(name, default, text, list(choices))
    flag.parser = _AliasParser(choices, further)
    return flags.DEFINE_flag(flag, flag_values)
