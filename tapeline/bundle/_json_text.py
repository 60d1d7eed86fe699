"""JSON text piece by piece, for objects with an entry per layer: what is written is not in memory at once."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

_INDENT: Final = "  "


class Entries:
    """Entries of an array or of an object, made each time they are written.

    Args:
        make: function that returns the entries: values of an array, or pairs of key and value of an object.
        is_object: whether these are pairs.
    """

    def __init__(self, make: Callable[[], Iterable[Any]], *, is_object: bool = False) -> None:
        self.make: Final = make
        self.is_object: Final = is_object


def indented_pieces(value: Any, level: int = 0) -> Iterator[str]:
    """Yields the text of ``json.dumps(value, indent=2)``; ``Entries`` in mappings stand for arrays and objects.

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
        pairs = value.make() if value.is_object else ((None, entry) for entry in value.make())
        yield from _indented("{}" if value.is_object else "[]", pairs, level)
    elif isinstance(value, Mapping) and _has_entries(value):
        yield from _indented("{}", value.items(), level)
    else:
        yield json.dumps(value, indent=2).replace("\n", "\n" + _INDENT * level)  # strings have no raw newlines


def sorted_pieces(value: Any) -> Iterator[str]:
    """Yields the text of ``json.dumps(value, sort_keys=True)``.

    >>> "".join(sorted_pieces({"b": Entries(lambda: [1, 2]), "a": None}))
    '{"a": null, "b": [1, 2]}'
    >>> "".join(sorted_pieces(Entries({"b": 1, "a": []}.items, is_object=True)))
    '{"a": [], "b": 1}'
    """
    if isinstance(value, Entries) and value.is_object:
        before = "{"
        for key, entry in sorted(value.make(), key=lambda pair: pair[0]):
            yield f"{before}{json.dumps(key)}: "
            yield from sorted_pieces(entry)
            before = ", "
        yield "}" if before == ", " else "{}"
    elif isinstance(value, Entries):
        before = "["
        for entry in value.make():
            yield before
            yield from sorted_pieces(entry)
            before = ", "
        yield "]" if before == ", " else "[]"
    elif isinstance(value, Mapping) and _has_entries(value):
        before = "{"
        for key, entry in sorted(value.items()):
            yield f"{before}{json.dumps(key)}: "
            yield from sorted_pieces(entry)
            before = ", "
        yield "}"
    else:
        yield json.dumps(value, sort_keys=True)


def _has_entries(value: Mapping[str, Any]) -> bool:
    return any(
        isinstance(entry, Entries) or (isinstance(entry, Mapping) and _has_entries(entry)) for entry in value.values()
    )


def _indented(brackets: str, pairs: Iterable[tuple[str | None, Any]], level: int) -> Iterator[str]:
    before = brackets[0]
    for key, entry in pairs:
        yield f"{before}\n{_INDENT * (level + 1)}"
        if key is not None:
            yield f"{json.dumps(key)}: "
        yield from indented_pieces(entry, level + 1)
        before = ","
    yield f"\n{_INDENT * level}{brackets[1]}" if before == "," else brackets
