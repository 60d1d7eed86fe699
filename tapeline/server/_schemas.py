"""JSON schemas of clients in the form that grammars are made of."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tapeline.grammar import FORMATS

_ANNOTATIONS: Final = frozenset({"contentEncoding", "contentMediaType", "contentSchema", "externalDocs", "xml"})
_NOT_READ: Final = re.compile(r"\(\?<?[=!]|\\[bB1-9]")  # patterns that grammars cannot have
_CHILDREN: Final = ("properties", "patternProperties", "$defs", "definitions")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_COMBINED: Final = ("allOf", "anyOf", "oneOf", "$ref")
_TEXT_ONLY: Final = frozenset({"type", "title", "description"})
_DEPTH: Final = 8  # references that are followed


@dataclass(frozen=True, slots=True)
class ClientSchema:
    """Schema of a client that was translated.

    Attributes:
        schema: schema with the values of the client's schema, or some of them.
        loosened: places of keywords that values need not satisfy, such as ``#/properties/tags/uniqueItems``.
    """

    schema: Any
    loosened: tuple[str, ...]


def client_schema(schema: Any) -> ClientSchema:
    """Returns a client's schema in the keywords that grammars have.

    - An unknown ``format``, and ``contentEncoding`` and its like, are annotations, as JSON Schema has them.
    - An object with ``properties`` and without ``additionalProperties`` excludes further properties, like llama.cpp.
      The parts of an ``allOf``, and objects with ``anyOf``, ``oneOf`` or ``$ref`` beside them, stay open.
    - ``nullable`` of OpenAPI adds null.
    - ``oneOf`` becomes ``anyOf``. A place at which two parts may hold for one value is loosened.
    - ``uniqueItems`` is loosened, unless there is one item at most.
    - ``propertyNames`` becomes ``properties`` or ``patternProperties`` if these say the same, and else is loosened.
    - A part of ``anyOf`` or ``oneOf`` with a pattern that cannot be a grammar is left out while another part remains.
    """
    translation = _Translation(schema)
    return ClientSchema(translation.part(schema, "#", closing=True), tuple(translation.loosened))


@dataclass(slots=True)
class _Translation:
    root: Any
    loosened: list[str] = field(default_factory=list[str])
    open_places: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.open_places = set(_combined_references(self.root))

    def part(self, part: Any, place: str, *, closing: bool) -> Any:
        if not isinstance(part, Mapping):
            return part
        combined = any(keyword in part for keyword in _COMBINED)
        several = len(part.get("allOf", ())) > 1 if isinstance(part.get("allOf"), list) else False
        branches_close = closing and not several and "properties" not in part
        result: dict[str, Any] = {}
        for keyword, value in part.items():
            if keyword in _ANNOTATIONS or (keyword == "format" and isinstance(value, str) and value not in FORMATS):
                continue
            where = f"{place}/{keyword}"
            if keyword in _CHILDREN and isinstance(value, Mapping):
                result[keyword] = {
                    key: self.part(
                        inner, f"{where}/{_pointed(key)}", closing=f"{where}/{_pointed(key)}" not in self.open_places
                    )
                    for key, inner in value.items()
                }
            elif keyword in _LISTS and isinstance(value, list):
                closes = branches_close or keyword == "prefixItems"
                result[keyword] = [
                    self.part(inner, f"{where}/{index}", closing=closes) for index, inner in enumerate(value)
                ]
            elif keyword in ("items", "additionalItems", "additionalProperties"):
                result[keyword] = self._inner(value, where)
            else:
                result[keyword] = value
        self._items(result, place)
        self._names(result, place)
        self._choices(result, place)
        if closing and not combined and "properties" in result and "patternProperties" not in result:
            result.setdefault("additionalProperties", False)
        return _nullable(result)

    def _inner(self, value: Any, where: str) -> Any:
        if isinstance(value, list):
            return [self.part(inner, f"{where}/{index}", closing=True) for index, inner in enumerate(value)]
        return self.part(value, where, closing=True)

    def _items(self, part: dict[str, Any], place: str) -> None:
        unique = part.get("uniqueItems")
        if not isinstance(unique, bool):
            return
        del part["uniqueItems"]
        most = part.get("maxItems")
        if unique and not (isinstance(most, int) and most <= 1):
            self.loosened.append(f"{place}/uniqueItems")

    def _names(self, part: dict[str, Any], place: str) -> None:
        names = part.get("propertyNames")
        if names is None or not isinstance(names, Mapping | bool):
            return
        del part["propertyNames"]
        if names is True or (isinstance(names, Mapping) and _is_any_text(names)):
            return
        free = "properties" not in part and "patternProperties" not in part
        values = part.get("additionalProperties", True)
        if free and isinstance(names, Mapping) and set(names) <= _TEXT_ONLY | {"enum"} and "enum" in names:
            part |= {"properties": {name: values for name in names["enum"] if isinstance(name, str)}}
            part["additionalProperties"] = False
        elif free and isinstance(names, Mapping) and set(names) <= _TEXT_ONLY | {"pattern"} and "pattern" in names:
            part |= {"patternProperties": {names["pattern"]: values}, "additionalProperties": False}
        else:
            self.loosened.append(f"{place}/propertyNames")

    def _choices(self, part: dict[str, Any], place: str) -> None:
        for keyword in ("anyOf", "oneOf"):
            choices = part.get(keyword)
            if isinstance(choices, list):
                readable = [choice for choice in choices if not _has_unread_pattern(choice)]
                part[keyword] = readable or choices
        choices = part.get("oneOf")
        if not isinstance(choices, list) or "anyOf" in part:
            return
        del part["oneOf"]
        part["anyOf"] = choices
        pairs = ((one, other) for index, one in enumerate(choices) for other in choices[:index])
        if not all(self._disjoint(one, other) for one, other in pairs):
            self.loosened.append(f"{place}/oneOf")

    def _disjoint(self, one: Any, other: Any) -> bool:
        """Returns True if values cannot satisfy both schemas, as far as types and constants tell."""
        one, other = self._resolved(one), self._resolved(other)
        kinds, other_kinds = _kinds(one), _kinds(other)
        if kinds is not None and other_kinds is not None and not kinds & other_kinds:
            return True
        if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
            return False
        values, other_values = _values(one), _values(other)
        if values is not None and other_values is not None:
            return not any(value == unlike for value in values for unlike in other_values)
        properties, other_properties = one.get("properties", {}), other.get("properties", {})
        if not (isinstance(properties, Mapping) and isinstance(other_properties, Mapping)):
            return False
        needed = set(one.get("required", ())) & set(other.get("required", ()))
        common = [name for name in properties if name in other_properties and name in needed]
        objects = kinds == other_kinds == {"object"}
        return objects and any(self._tells(properties[name], other_properties[name]) for name in common)

    def _tells(self, one: Any, other: Any) -> bool:
        values, other_values = _values(self._resolved(one)), _values(self._resolved(other))
        if values is None or other_values is None:
            return False
        return not any(value == unlike for value in values for unlike in other_values)

    def _resolved(self, part: Any) -> Any:
        for _ in range(_DEPTH):
            if not isinstance(part, Mapping) or not isinstance(part.get("$ref"), str):
                return part
            part = _at(self.root, part["$ref"])
        return part


def _at(root: Any, pointer: str) -> Any:
    """Returns the schema at a JSON pointer; None if there is none."""
    part = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(part, Mapping) or key not in part:
            return None
        part = part[key]
    return part


def _combined_references(schema: Any) -> Iterator[str]:
    """Yields the references that are combined with other schemas, which their objects must leave open."""
    if isinstance(schema, list):
        for part in schema:
            yield from _combined_references(part)
    if not isinstance(schema, Mapping):
        return
    branches = schema.get("allOf")
    if isinstance(branches, list) and (len(branches) > 1 or "properties" in schema):
        yield from (
            branch["$ref"] for branch in branches if isinstance(branch, Mapping) and isinstance(branch.get("$ref"), str)
        )
    if "properties" in schema:
        for keyword in ("anyOf", "oneOf"):
            parts = schema.get(keyword)
            inner = parts if isinstance(parts, list) else []
            yield from (
                part["$ref"] for part in inner if isinstance(part, Mapping) and isinstance(part.get("$ref"), str)
            )
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
    for value in schema.values():
        yield from _combined_references(value)


def _pointed(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _is_any_text(names: Mapping[str, Any]) -> bool:
    return set(names) <= _TEXT_ONLY and names.get("type", "string") == "string"


def _has_unread_pattern(part: Any) -> bool:
    pattern = part.get("pattern") if isinstance(part, Mapping) else None
    return isinstance(pattern, str) and _NOT_READ.search(pattern) is not None


def _nullable(part: dict[str, Any]) -> dict[str, Any]:
    nullable = part.get("nullable")
    if not isinstance(nullable, bool):
        return part
    del part["nullable"]
    if not nullable:
        return part
    kinds = part.get("type")
    if isinstance(kinds, str | list):
        part["type"] = sorted({*([kinds] if isinstance(kinds, str) else map(str, kinds)), "null"})
    if isinstance(part.get("enum"), list) and None not in part["enum"]:
        part["enum"] = [*part["enum"], None]
    if "const" in part:
        part["enum"] = [part.pop("const"), None]
    if any(keyword in part for keyword in _COMBINED):
        named = {key: part.pop(key) for key in ("$defs", "definitions") if key in part}
        return {**named, "anyOf": [part, {"type": "null"}]}
    return part


def _kinds(part: Any) -> set[str] | None:
    """Returns the types of a schema's values; None if the schema does not say."""
    if not isinstance(part, Mapping):
        return None
    kinds = part.get("type")
    if isinstance(kinds, str | list):
        named = {kinds} if isinstance(kinds, str) else {str(kind) for kind in kinds}
        return named | ({"integer"} if "number" in named else set())
    values = _values(part)
    return None if values is None else {_kind(value) for value in values}


def _kind(value: Any) -> str:
    names = {bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _values(part: Any) -> list[Any] | None:
    """Returns the values that a schema lists; None if it lists none."""
    if not isinstance(part, Mapping):
        return None
    if "const" in part:
        return [part["const"]]
    return part["enum"] if isinstance(part.get("enum"), list) else None
