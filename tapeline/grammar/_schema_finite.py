"""Schemas that no finite value satisfies, because they need themselves."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from lang_core import InputError
from tapeline.grammar._schema import pointer_part, subschemas

_CONTAINERS: Final = frozenset({"object", "array"})


def check_finite(schema: Any, name: str) -> None:
    """Refuses a schema whose values would have no end, such as a list item that must hold a list item.

    Args:
        schema: checked for its keywords.
        name: name of the schema, for messages.

    Raises:
        InputError: no finite value satisfies it.
    """
    parts = dict(subschemas(schema))
    if not any(isinstance(part, Mapping) and "$ref" in part for part in parts.values()):
        return
    finite: set[str] = set()
    before = -1
    while before < len(finite):  # each round sees the values that the last one found
        before = len(finite)
        finite |= {place for place, part in parts.items() if place not in finite and _is_finite(part, place, finite)}
    if "#" not in finite:
        raise InputError(
            f"{name} at {_cause(parts, finite)}: it needs itself, so that no finite value satisfies it: make the "
            "property that refers to it optional, or give another choice in `anyOf`"
        )


def _cause(parts: Mapping[str, Any], finite: set[str]) -> str:
    """Returns the first reference that has no end."""
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
    """Returns whether a value that holds no others is allowed, or all values are listed."""
    kinds = part.get("type")
    named = {kinds} if isinstance(kinds, str) else set(kinds or ())
    return "enum" in part or "const" in part or bool(named - _CONTAINERS) or not named


def _container_is_finite(part: Mapping[str, Any], place: str, finite: set[str]) -> bool:
    kinds = part["type"]
    return ("object" in kinds and _object_is_finite(part, place, finite)) or (
        "array" in kinds and _array_is_finite(part, place, finite)
    )


def _object_is_finite(part: Mapping[str, Any], place: str, finite: set[str]) -> bool:
    properties = part.get("properties", {})
    inner = [f"{place}/properties/{pointer_part(key)}" for key in part.get("required", ()) if key in properties]
    return all(key in finite for key in inner)


def _array_is_finite(part: Mapping[str, Any], place: str, finite: set[str]) -> bool:
    count = part.get("minItems", 0)
    prefix = len(part.get("prefixItems", ()))
    inner = [f"{place}/prefixItems/{index}" for index in range(min(count, prefix))]
    if count > prefix and isinstance(part.get("items"), Mapping):
        inner.append(f"{place}/items")
    return all(key in finite for key in inner)
