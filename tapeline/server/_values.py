"""Values of JSON in messages: where they stand, and what they are."""

import json
from typing import Any, Final, NoReturn

from tapeline.server._errors import RequestError

_SHOWN: Final = 60


def refuse(path: str, expected: str, value: Any) -> NoReturn:
    """Raises the error of a value that is not what a field takes."""
    raise RequestError(f"{path}: expected {expected}; found {shown(value)}", param=path)


def shown(value: Any) -> str:
    """Returns a JSON value as a message shows it: short."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def cut(text: str, most: int = _SHOWN) -> str:
    """Returns a text of a request as a message shows it: its beginning.

    >>> cut("a" * 100, 5)
    'aaaaa...'
    """
    return text if len(text) <= most else f"{text[:most]}..."


def joined(path: str, name: str | int) -> str:
    """Returns the path of a field inside another.

    >>> joined(joined("messages", 2), "role")
    'messages[2].role'
    """
    if isinstance(name, int):
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name
