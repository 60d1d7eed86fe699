"""Messages of llguidance, short and in one line."""

import re
from typing import Final

_LONGEST: Final = 200
_SPACES: Final = re.compile(r"\s+")


def short_place(place: str) -> str:
    """Returns a JSON pointer without its middle if it is long.

    >>> len(short_place("#/properties/" + "a" * 1000))
    203
    """
    half = _LONGEST // 2
    return place if len(place) <= _LONGEST else f"{place[:half]}...{place[-half:]}"


def short(message: str) -> str:
    r"""Returns a message in one line, without the state that follows it.

    >>> short("Parser Error: no\n<non-verbose/>")
    'Parser Error: no'
    """
    text = _SPACES.sub(" ", message.partition("\n<")[0]).strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
