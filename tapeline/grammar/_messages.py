"""Messages of llguidance, short and in one line."""

import re
from typing import Final

_LONGEST: Final = 200
_SPACES: Final = re.compile(r"\s+")


def short(message: str) -> str:
    r"""Returns a message in one line, without the state that follows it.

    >>> short("Parser Error: no\n<non-verbose/>")
    'Parser Error: no'
    """
    text = _SPACES.sub(" ", message.partition("\n<")[0]).strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
