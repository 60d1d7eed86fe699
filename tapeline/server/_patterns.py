"""Host names of requests and of settings: their parts."""

import re
from typing import Final

_AUTHORITY: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|(\w[\w.-]{0,252}))(?::([0-9]{0,5}))?", re.ASCII)
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\sA-Z/,]+")


def split_authority(text: str) -> tuple[str, str | None] | None:
    """Returns name and port of a Host header, or None if the text is none.

    The name is in lower case, without brackets and without the dot at its end.

    >>> split_authority("Example.COM.:80")
    ('example.com', '80')
    >>> split_authority("me@example.com") is None
    True
    """
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None
    name = (match[1] or match[2]).lower()
    return name.removesuffix("."), match[3] or None


def is_host_pattern(text: str) -> bool:
    """Returns True if a text is a host that a server may allow: a name, an address, ``*.NAME``, or ``*``."""
    return text == "*" or split_authority(text.removeprefix("*.")) is not None


def is_origin(text: str) -> bool:
    """Returns True if a text is an origin in lower case: ``scheme://host[:port]``, ``null``, or ``*`` for all."""
    return text in ("*", "null") or _ORIGIN.fullmatch(text) is not None
