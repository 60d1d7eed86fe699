"""Texts of clients in messages: short, whatever a client sends."""

import json
from typing import Final

_MARK: Final = "..."


def shortened(text: str, most: int = 60) -> str:
    """Returns a text as a message shows it: its first characters.

    >>> shortened("a" * 100, 5)
    'aaaaa...'
    """
    return text if len(text) <= most else f"{text[:most]}{_MARK}"


def shortened_path(path: str, most: int = 200) -> str:
    """Returns the path of a field without its middle if it is long.

    >>> shortened_path("messages" + "[0]" * 100, 20)
    'messages[0]...0][0]'
    """
    half = (most - len(_MARK)) // 2
    return path if len(path) <= most else f"{path[: half + 3]}{_MARK}{path[3 - half :]}"


def shortened_json(text: str, nbytes: int) -> str:
    r"""Returns a text that takes at most some bytes as a string of JSON in UTF-8, without its quotes.

    >>> shortened_json("\x00" * 100, 20)
    '\x00\x00...'
    """
    if _nbytes(text[: nbytes + 1]) <= nbytes:
        return text
    low, high = 0, min(len(text), nbytes)  # the text's first `low` characters fit, `high + 1` do not
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _nbytes(text[:middle] + _MARK) <= nbytes else (low, middle - 1)
    return text[:low] + _MARK


def _nbytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) - 2
