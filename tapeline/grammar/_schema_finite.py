"""Schemas without finite values, because they require themselves."""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from lang_core import InputError
from tapeline.grammar._messages import short_place
from tapeline.grammar._schema import pointer_part, subschemas

_CONTAINERS: Final = frozenset({"object", "array"})


def check_finite(schema: Any, name: str) -> None:
    """Refuses a schema with infinite values only, such as a list item that must hold a list item.

    Args:
        schema: checked for its keywords.
        name: name of the schema, for messages.

    Raises:
        InputError: finite values do not satisfy it.
    """
    parts = dict(subschemas(schema))
    if not any(isinstance(part, Mapping) and "$ref" in part for part in parts.values()):
        return
    finite = _finite_places(parts)
    if "#" not in finite:
        place = short_place(_cause(parts, finite))
        raise InputError(
            f"{name} at {place}: it needs itself, so that no finite value satisfies it: make the property "
            "that refers to it optional, or give another choice in `anyOf`"
        )


def _finite_places(parts: Mapping[str, Any]) -> set[str]:
    """Returns the places of schemas that have a finite value; each is looked at again when one that it needs has."""
    dependents: defaultdict[str, list[str]] = defaultdict(list)
    for place, part in parts.items():
        for needed in _needed(part, place):
            dependents[needed].append(place)
    finite: set[str] = set()
    waiting = deque(parts)
    while waiting:
        place = waiting.popleft()
        if place not in finite and _is_finite(parts[place], place, finite):
            finite.add(place)
            waiting += dependents[place]
    return finite


def _needed(part: Any, place: str) -> Iterator[str]:
    """Yields the places on which the answer of ``_is_finite`` depends."""
    if not isinstance(part, Mapping):
        return
    if "$ref" in part:
        yield unquote(part["$ref"])
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from (f"{place}/{keyword}/{index}" for index in range(len(part.get(keyword, ()))))
    yield from _required(part, place)
    yield from _items(part, place)


def _cause(parts: Mapping[str, Any], finite: set[str]) -> str:
    """Returns the first reference that never ends."""
    endless = (p for p, part in parts.items() if p not in finite and isinstance(part, Mapping) and "$ref" in part)
    return next(endless, "#")


def _is_finite(part: Any, place: str, finite: set[str]) -> bool:
    if not isinstance(part, Mapping):
        return True
    if "$ref" in part and unquote(part["$ref"]) not in finite:
        return False
    if not all(f"{place}/allOf/{index}" in finite for index in range(len(part.get("allOf", ())))):
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in part and not any(f"{place}/{keyword}/{index}" in finite for index in range(len(part[keyword]))):
            return False
    return _has_plain_value(part) or _container_is_finite(part, place, finite)


def _has_plain_value(part: Mapping[str, Any]) -> bool:
    """Returns whether a scalar or empty value is allowed, or all values are listed."""
    kinds = part.get("type")
    named = {kinds} if isinstance(kinds, str) else set(kinds or ())
    return "enum" in part or "const" in part or bool(named - _CONTAINERS) or not named


def _container_is_finite(part: Mapping[str, Any], place: str, finite: set[str]) -> bool:
    kinds = part["type"]
    return ("object" in kinds and _object_is_finite(part, place, finite)) or (
        "array" in kinds and _array_is_finite(part, place, finite)
    )


def _object_is_finite(part: Mapping[str, Any], place: str, finite: set[str]) -> bool:
    return all(key in finite for key in _required(part, place))


def _array_is_finite(part: Mapping[str, Any], place: str, finite: set[str]) -> bool:
    return all(key in finite for key in _items(part, place))


def _required(part: Mapping[str, Any], place: str) -> Iterator[str]:
    properties = part.get("properties", {})
    for key in part.get("required", ()):
        if key in properties:
            yield f"{place}/properties/{pointer_part(key)}"


def _items(part: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yields the places of the items that a list must have."""
    count = part.get("minItems", 0)
    prefix = len(part.get("prefixItems", ()))
    yield from (f"{place}/prefixItems/{index}" for index in range(min(count, prefix)))
    if count > prefix and isinstance(part.get("items"), Mapping):
        yield f"{place}/items"
