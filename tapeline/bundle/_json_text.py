"""JSON text piece by piece, for objects with an entry per layer: the text is not in memory at once.

Values of a mapping other than a dict are made when they are written, like those of ``Entries``.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

_INDENT: Final = "  "


class Entries:
    """Entries of an array, made each time they are written.

    Args:
        make: function that returns the entries.
    """

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self.make: Final = make


def indented_pieces(value: Any, level: int = 0) -> Iterator[str]:
    """Yields the text of ``json.dumps(value, indent=2)``; ``Entries`` in mappings stand for arrays.

    >>> print("".join(indented_pieces({"a": Entries(lambda: [1, {"b": []}]), "c": Entries(lambda: [])})))
    {
      "a": [
        1,
        {
          "b": []
        }
      ],
      "c": []
    }
    """
    if isinstance(value, Entries):
        yield from _indented("[]", ((None, entry) for entry in value.make()), level)
    elif _is_lazy(value):
        yield from _indented("{}", value.items(), level)
    else:
        yield json.dumps(value, indent=2).replace("\n", "\n" + _INDENT * level)  # strings have no raw newlines


def sorted_pieces(value: Any) -> Iterator[str]:
    """Yields the text of ``json.dumps(value, sort_keys=True)``.

    >>> "".join(sorted_pieces({"b": Entries(lambda: [1, 2]), "a": None}))
    '{"a": null, "b": [1, 2]}'
    >>> from types import MappingProxyType
    >>> "".join(sorted_pieces(MappingProxyType({"b": 1, "a": []})))
    '{"a": [], "b": 1}'
    """
    if isinstance(value, Entries):
        before = "["
        for entry in value.make():
            yield before
            yield from sorted_pieces(entry)
            before = ", "
        yield "]" if before == ", " else "[]"
    elif _is_lazy(value):
        before = "{"
        for key in sorted(value):
            yield f"{before}{json.dumps(key)}: "
            yield from sorted_pieces(value[key])
            before = ", "
        yield "}" if before == ", " else "{}"
    else:
        yield json.dumps(value, sort_keys=True)


def _is_lazy(value: Any) -> bool:
    """Returns whether a value is a mapping that has entries made when they are written."""
    if not isinstance(value, dict):
        return isinstance(value, Mapping)
    return any(isinstance(entry, Entries) or _is_lazy(entry) for entry in value.values())


def _indented(brackets: str, pairs: Iterable[tuple[str | None, Any]], level: int) -> Iterator[str]:
    before = brackets[0]
    for key, entry in pairs:
        yield f"{before}\n{_INDENT * (level + 1)}"
        if key is not None:
            yield f"{json.dumps(key)}: "
        yield from indented_pieces(entry, level + 1)
        before = ","
    yield f"\n{_INDENT * level}{brackets[1]}" if before == "," else brackets
