"""Flags that are shown, former names of flags, and names of options in messages written as flags."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from absl import flags

FORMER: Final = {
    "engine": "backend",
    "found": "actual",
    "prefix_store": "prefix_cache_memory",
    "reference_engine": "reference_backend",
    "score_tokens": "verify_tokens",
    "stall": "target_itl",
    "tick_tokens": "max_batched_tokens",
}
"""Former names of flags, which are still read but not shown, with the present names."""

_WITHOUT_HELP: Final = "(no help available)"


def shown_flags(values: flags.FlagValues) -> Iterator[flags.Flag[Any]]:
    """Yields the flags that help, completion and documents list: those with a help text."""
    yield from (flag for flag in map(values.__getitem__, values) if not (flag.help or "").endswith(_WITHOUT_HELP))


def as_flags(text: str, names: Iterable[str]) -> str:
    """Writes the options that a message names as flags.

    Messages of the library name options as Python does: ``name=value``, or the name alone in backticks.

    Args:
        text: message of the library.
        names: options that are flags.

    >>> as_flags("max_sequence=0: give a number above 0, or a smaller `batch`", ["max_sequence", "batch"])
    '--max_sequence=0: give a number above 0, or a smaller --batch'
    """
    present = {name: name for name in names}
    present |= {old: new for old, new in FORMER.items() if new in present}
    known = "|".join(sorted(map(re.escape, present)))
    text = re.sub(rf"`({known})(=[^`]*)?`", lambda match: f"--{present[match[1]]}{match[2] or ''}", text)
    return re.sub(rf"(?<![\w.\-/=`'\"])({known})=", lambda match: f"--{present[match[1]]}=", text)


def flag_translator(names: Iterable[str]) -> Callable[[str], str]:
    """Returns ``as_flags`` for these options."""
    known = list(names)
    return lambda text: as_flags(text, known)
