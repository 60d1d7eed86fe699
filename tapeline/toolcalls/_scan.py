"""JSON in growing text: the end of a value, and the contents of a call."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from lang_core import json_value

_STRUCTURE: Final = re.compile(r'["{}\[\]]')
_IN_STRING: Final = re.compile(r'["\\]')
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()
_KEYS: Final = frozenset({"name", "arguments", "parameters", "id", "type"})


class ValueScanner:
    """Finds the end of a JSON object or list in text that grows; each character is looked at once.

    Args:
        start: start of the value in the text.
    """

    def __init__(self, start: int) -> None:
        self._position = start
        self._depth = 0
        self._quoted = False

    def end(self, text: str) -> int | None:
        """Returns the end of the value, one beyond its last character; None while it goes on.

        >>> ValueScanner(0).end('{"}": []} and')
        9
        """
        while self._position < len(text):
            stop = self._quote(text) if self._quoted else self._structure(text)
            if stop is not None:
                return stop
        return None

    def _quote(self, text: str) -> None:
        mark = _IN_STRING.search(text, self._position)
        if mark is None:
            self._position = len(text)
        elif mark.group() == '"':
            self._quoted = False
            self._position = mark.end()
        else:
            self._position = mark.end() + 1  # what a backslash escapes, even if it has not come yet

    def _structure(self, text: str) -> int | None:
        mark = _STRUCTURE.search(text, self._position)
        self._position = len(text) if mark is None else mark.end()
        if mark is None:
            return None
        kind = mark.group()
        self._quoted = kind == '"'
        self._depth += (kind in "{[") - (kind in "}]")
        return mark.end() if self._depth == 0 and not self._quoted else None


def call_of(text: str, tools: Collection[str]) -> tuple[str, str] | None:
    """Returns name and arguments of a call that is a JSON object; None if it is not a call of one of the tools.

    >>> call_of('{"name": "f", "arguments": {"a":  1}}', {"f"})
    ('f', '{"a":  1}')
    """
    try:
        members = dict(_members(text))
    except (ValueError, RecursionError):
        return None
    if not set(members) <= _KEYS or ("arguments" in members and "parameters" in members):
        return None
    name = json_value(members.get("name", "null"))
    arguments = arguments_of(members.get("arguments") or members.get("parameters") or "{}")
    return (name, arguments) if isinstance(name, str) and name in tools and arguments is not None else None


def arguments_of(text: str) -> str | None:
    """Returns the JSON text of arguments, that of an object or one in a string; None if they are neither."""
    value = _value(text)
    if isinstance(value, str):
        text, value = value, _value(value)
    return text if isinstance(value, dict) else None


def _value(text: str) -> Any:
    try:
        return json_value(text, nonfinite=True)
    except ValueError:
        return None


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Yields keys and JSON texts of values of an object; raises ValueError if it is damaged."""
    if not isinstance(json_value(text, nonfinite=True), dict):
        raise ValueError(text)
    position = _after(text, 0, "{")
    while text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        start = _after(text, position, ":")
        _, position = _DECODER.raw_decode(text, start)
        yield key, text[start:position]
        position = _after(text, position, ",")


def _after(text: str, position: int, mark: str) -> int:
    """Returns the position after spaces, a mark if there is one, and spaces."""
    position = _skip(text, position)
    return _skip(text, position + 1) if text[position : position + 1] == mark else position


def _skip(text: str, position: int) -> int:
    spaces = _SPACE.match(text, position)
    return spaces.end() if spaces else position


def held_length(text: str, marks: Sequence[str]) -> int:
    """Returns how many characters at a text's end may be the beginning of a mark.

    >>> held_length("so <tool", ["<tool_call>"])
    5
    """
    longest = min(len(text), max(map(len, marks), default=1) - 1)
    return next((size for size in range(longest, 0, -1) if _begins(text[-size:], marks)), 0)


def _begins(text: str, marks: Sequence[str]) -> bool:
    return any(mark.startswith(text) for mark in marks)


def first_mark(text: str, marks: Sequence[str]) -> tuple[int, str] | None:
    """Returns place and text of the first mark in a text; the longest of those at one place; None without any."""
    places = [(place, -len(mark), mark) for mark in marks if (place := text.find(mark)) >= 0]
    if not places:
        return None
    place, _, mark = min(places)
    return place, mark
