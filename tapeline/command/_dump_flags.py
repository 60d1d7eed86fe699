"""Flags of dumps, which several commands have."""

from dataclasses import dataclass
from typing import Final

from absl import flags

from lang_core import InputError
from runtime.dump import DumpLimits
from tapeline.cli import parse_size, user_path
from tapeline.running import DumpOptions

_NO_LIMIT: Final = "none"


@dataclass(frozen=True, slots=True)
class DumpFlags:
    """Holders of the flags of a dump.

    Attributes:
        directory: ``--dump``.
        level: ``--dump_level``.
        limit: ``--dump_limit``.
    """

    directory: flags.FlagHolder[str | None]
    level: flags.FlagHolder[int | None]
    limit: flags.FlagHolder[str]

    def options(self) -> DumpOptions | None:
        """Returns the options of the dump; None if none is asked for.

        Raises:
            InputError: flags contradict each other, or a limit is not a size.
        """
        if self.directory.value is None and self.level.value:
            raise InputError(f"dump_level={self.level.value}: name the directory of the dump with `dump`")
        limits = _limits(self.limit.value)
        if self.directory.value is None or self.level.value == 0:
            return None
        level = 1 if self.level.value is None else self.level.value
        return DumpOptions(user_path(self.directory.value), level, limits)


def define_dump_flags(values: flags.FlagValues) -> DumpFlags:
    """Defines the flags of dumps in a command's flags."""
    return DumpFlags(
        flags.DEFINE_string(
            "dump", None, "Directory for a tensor dump, new or empty (docs/dump.md).", flag_values=values
        ),
        flags.DEFINE_integer(
            "dump_level",
            None,
            "Dump level: 0 nothing, 1 tags, 2 also arguments and results of entry points and kernels, 3 statistics of "
            "all of these but elements of tags only. Default: 1.",
            flag_values=values,
        ),
        flags.DEFINE_string(
            "dump_limit",
            "256MiB,16GiB",
            "Size limits of the dump: the largest tensor to write, and the total; none is unlimited.",
            flag_values=values,
        ),
    )


def _limits(text: str) -> DumpLimits:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 2 or not all(parts):
        raise InputError(f"dump_limit={text}: expected TENSOR or TENSOR,TOTAL, such as 64MiB,4GiB; none is no limit")
    return DumpLimits(*(None if part == _NO_LIMIT else parse_size("dump_limit", part) for part in parts))
