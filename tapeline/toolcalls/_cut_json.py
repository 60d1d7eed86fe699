"""JSON that was cut off: the value of the present part."""

import re
from typing import Any, Final

from lang_core import json_value

_MARK: Final = re.compile(r'["\\{}\[\],]')
_CLOSING: Final = {"{": "}", "[": "]"}
_ESCAPE: Final = re.compile(r"(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)\Z")  # an escape that is not complete


def closed_json(text: str) -> Any:
    """Returns the value of an object with a JSON text that was cut off; None if the text does not begin an object.

    A string that was cut off ends where the text ends. A key without its value, and a number or a word that was cut
    off, are left out.

    >>> closed_json('{"city": "Par'), closed_json('{"a": [1, 2], "b'), closed_json("no")
    ({'city': 'Par'}, {'a': [1, 2]}, None)
    """
    open_marks: list[str] = []
    quoted = False
    settled, closing_settled = 0, ""  # where the last member ends, and what closes the text there
    place = 0
    while (mark := _MARK.search(text, place)) is not None:
        place, kind = mark.end(), mark.group()
        if quoted:
            if kind == "\\":
                place += 1
            quoted = kind != '"'
        elif kind == '"':
            quoted = True
        elif kind in _CLOSING:
            open_marks.append(kind)
            settled, closing_settled = mark.end(), _closing(open_marks)
        elif kind == "," and open_marks:
            settled, closing_settled = mark.start(), _closing(open_marks)
        elif kind in "}]" and open_marks:
            open_marks.pop()
    if not text.lstrip().startswith("{"):
        return None
    whole = f'{_without_half_escape(text)}"' if quoted else text
    for candidate in (f"{whole}{_closing(open_marks)}", f"{text[:settled]}{closing_settled}"):
        try:
            value = json_value(candidate, nonfinite=True)
        except ValueError:
            continue
        return value if isinstance(value, dict) else None
    return None


def _closing(open_marks: list[str]) -> str:
    return "".join(_CLOSING[mark] for mark in reversed(open_marks))


def _without_half_escape(text: str) -> str:
    half = _ESCAPE.search(text)
    return text if half is None else text[: half.start(1)]
