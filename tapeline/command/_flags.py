"""Names of options in messages, written as flags."""

import re
from collections.abc import Callable, Iterable


def as_flags(text: str, names: Iterable[str]) -> str:
    """Writes the options that a message names as flags.

    Messages of the library name options as Python does: ``name=value``, or the name alone in backticks.

    Args:
        text: message of the library.
        names: options that are flags.

    >>> as_flags("max_sequence=0: give a number above 0, or a smaller `batch`", ["max_sequence", "batch"])
    '--max_sequence=0: give a number above 0, or a smaller --batch'
    """
    known = "|".join(sorted(map(re.escape, names)))
    text = re.sub(rf"`({known})(=[^`]*)?`", lambda match: f"--{match[1]}{match[2] or ''}", text)
    return re.sub(rf"(?<![\w.\-/=`'\"])({known})=", r"--\1=", text)


def flag_translator(names: Iterable[str]) -> Callable[[str], str]:
    """Returns ``as_flags`` for these options."""
    known = list(names)
    return lambda text: as_flags(text, known)
