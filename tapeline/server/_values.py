"""Values of JSON in messages: their path and description."""

import json
from typing import Any, Final, NoReturn

from tapeline.server._errors import RequestError
from tapeline.server._shortening import shortened, shortened_path

_SHOWN: Final = 60
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)


def refuse(path: str, expected: str, value: Any) -> NoReturn:
    """Raises the error of a value that a field does not accept."""
    raise RequestError(f"{path}: expected {expected}; found {shown(value)}", param=path)


def shown(value: Any) -> str:
    """Returns a JSON value as a message shows it: short, and without writing the whole of it.

    >>> shown(["a" * 100])
    '["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...'
    """
    text = ""
    for part in _ENCODER.iterencode(value[: _SHOWN + 1] if isinstance(value, str) else value):
        text += part
        if len(text) > _SHOWN:
            break
    return shortened(text, _SHOWN)


def joined(path: str, name: str | int) -> str:
    """Returns the path of a field inside another, short enough for a message.

    >>> joined(joined("messages", 2), "role")
    'messages[2].role'
    """
    if isinstance(name, int):
        return shortened_path(f"{path}[{name}]")
    shown_name = shortened(name, _SHOWN)
    return shortened_path(f"{path}.{shown_name}" if path else shown_name)
