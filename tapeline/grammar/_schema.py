"""Checks of a JSON schema before it becomes a grammar: every keyword is one that is obeyed."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from lang_core import InputError, any_of, near_names, some_of
from tapeline.grammar._messages import short_place
from tapeline.grammar._specs import Schema

_ROOT: Final = "#"
_MOST_PLACES: Final = 16 << 20  # characters of the JSON pointers to all schemas in a schema

# Keywords that hold schemas: one, a list, a mapping.
_ONE: Final = frozenset({"items", "additionalItems", "additionalProperties"})
_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
_MAPPINGS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})

_VALUES: Final = frozenset(
    """
    $ref type enum const required minItems maxItems minProperties maxProperties minLength maxLength pattern format
    minimum maximum exclusiveMinimum exclusiveMaximum multipleOf
    """.split()
)
_ANNOTATIONS: Final = frozenset(
    "title description default example examples $comment $schema readOnly writeOnly deprecated discriminator".split()
)
_KEYWORDS: Final = _ONE | _LISTS | _MAPPINGS | _VALUES
_TYPES: Final = ("string", "number", "integer", "boolean", "null", "array", "object")
FORMATS: Final = ("date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")
"""Formats of strings that grammars obey."""

_VENDOR: Final = "x-"
_ENGINE: Final = "x-guidance"  # options of the library's, with which a schema could switch off its checks

# Control characters that have no short escape in JSON: strings are written without \u.
_CONTROL: Final = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")
# Syntax that the library reads otherwise than ECMA-262: flags, and sets inside a character class.
_FOREIGN: Final = re.compile(r"\(\?[A-Za-z-]+[:)]|(?<!\\)(?:\\\\)*\[\^?\]?(?:\\.|[^\]\\])*?(?:\[|&&|--|~~)")


def check_schema(schema: Any, depth: int, name: str = "json_schema") -> None:
    """Refuses a schema with features that would not be enforced.

    Args:
        schema: from JSON.
        depth: greatest nesting of schemas and values.
        name: name of the schema, for messages.

    Raises:
        InputError: it is not a schema, nests too deep, or has an unsupported keyword or value.
    """
    _check_depth(schema, depth, name)
    size = 0
    for place, part in subschemas(schema):
        size += len(place)
        if size > _MOST_PLACES:
            raise InputError(
                f"{name} at {short_place(place)}: the paths of all its schemas have more than {_MOST_PLACES:,} "
                "characters: shorten the names of properties, or nest less"
            )
        _check_part(part, f"{name} at {short_place(place)}")


def subschemas(schema: Any, place: str = _ROOT) -> Iterator[tuple[str, Any]]:
    """Yields (JSON pointer, schema) of all schemas in a schema, inner ones first."""
    if isinstance(schema, Mapping):
        for keyword, value in schema.items():
            for suffix, part in _held(keyword, value):
                yield from subschemas(part, f"{place}/{pointer_part(keyword)}{suffix}")
    yield place, schema


def pointer_part(name: object) -> str:
    """Returns a key as a part of a JSON pointer."""
    return str(name).replace("~", "~0").replace("/", "~1")


def _held(keyword: str, value: Any) -> Iterator[tuple[str, Any]]:
    if keyword in _MAPPINGS and isinstance(value, Mapping):
        yield from ((f"/{pointer_part(key)}", part) for key, part in value.items())
    elif keyword in _LISTS and isinstance(value, list):
        yield from ((f"/{index}", part) for index, part in enumerate(value))
    elif keyword in _ONE:
        yield "", value


def _check_depth(schema: Any, depth: int, name: str) -> None:
    level: list[tuple[tuple[Any, ...], Any]] = [((), schema)]  # keys from the innermost one, as (key, (key, ...))
    for _ in range(depth + 1):
        level = [((key, outer), part) for outer, value in level for key, part in _inside(value)]
        if not level:
            return
    keys, outer = list[object](), level[0][0]
    while outer:
        keys.append(outer[0])
        outer = outer[1]
    place = "/".join([_ROOT, *(pointer_part(key) for key in reversed(keys))])
    raise InputError(
        f"{name} at {place:.200}: schemas may nest {depth} levels deep, and this is deeper: flatten it, or name "
        "its parts in `$defs`"
    )


def _inside(value: Any) -> Iterator[tuple[object, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _check_part(part: Any, place: str) -> None:
    if isinstance(part, bool):
        return
    if not isinstance(part, Mapping):
        raise InputError(f"{place}: expected a schema, which is an object, true or false; found {part!r:.80}")
    for keyword, value in part.items():
        _check_keyword(keyword, place)
        check = _CHECKS.get(keyword)
        if check is not None:
            check(value, f"{place}/{pointer_part(keyword)}", part)


def _check_keyword(keyword: str, place: str) -> None:
    if keyword in _KEYWORDS or keyword in _ANNOTATIONS:
        return
    if keyword == "$id" and place.endswith(f" {_ROOT}"):
        return
    if keyword.startswith(_VENDOR) and keyword != _ENGINE:
        return
    known = some_of(keyword, sorted(_KEYWORDS))
    raise InputError(
        f"{place}: keyword {keyword!r:.80} is not supported{near_names(keyword, _KEYWORDS)}; supported: {known}: leave "
        "it out, or say the same by these"
    )


def _check_reference(value: Any, place: str, part: Schema) -> None:
    if not isinstance(value, str) or not (value == _ROOT or value.startswith(f"{_ROOT}/")):
        raise InputError(
            f"{place}: expected a reference inside the schema, such as #/$defs/name; found {value!r:.80}: nothing is "
            "fetched; copy what it means into `$defs`"
        )


def _check_format(value: Any, place: str, part: Schema) -> None:
    if value not in FORMATS:
        raise InputError(
            f"{place}: format {value!r:.80} is not supported; supported: {any_of(FORMATS)}: say it by `pattern`"
        )


def _check_pattern(value: Any, place: str, part: Schema) -> None:
    if not isinstance(value, str):
        raise InputError(f"{place}: expected a regular expression; found {value!r:.80}")
    foreign = _FOREIGN.search(value)
    if foreign:
        raise InputError(
            f"{place}: {foreign.group()!r:.80} is not supported: flags, and [, &&, -- and ~~ in a character class; "
            "write a [ in a class as \\["
        )


def _check_patterns(value: Any, place: str, part: Schema) -> None:
    _check_mapping(value, place, part)
    for pattern in value:
        _check_pattern(pattern, f"{place}/{pointer_part(pattern):.100}", part)


def _check_mapping(value: Any, place: str, part: Schema) -> None:
    if not isinstance(value, Mapping):
        raise InputError(f"{place}: expected an object of schemas; found {value!r:.80}")
    for key in value:
        _check_text(key, f"{place}/{pointer_part(key):.100}")


def _check_list(value: Any, place: str, part: Schema) -> None:
    if not isinstance(value, list):
        raise InputError(f"{place}: expected a list of schemas; found {value!r:.80}")


def _check_constant(value: Any, place: str, part: Schema) -> None:
    """Constants are written as JSON text, for which each string in them must have one."""
    for key, inner in _inside(value):
        if isinstance(key, str):
            _check_text(key, place)
        _check_constant(inner, place, part)
    if isinstance(value, str):
        _check_text(value, place)


def _check_text(text: str, place: str) -> None:
    control = _CONTROL.search(text)
    if control:
        raise InputError(
            f"{place}: character U+{ord(control.group()):04X} of {text!r:.80} is not supported: JSON has no short "
            "escape of it"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{place}: {text!a:.80} is not valid Unicode (character {error.start})") from error


def _check_type(value: Any, place: str, part: Schema) -> None:
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) and name in _TYPES for name in names):
        raise InputError(f"{place}: expected {any_of(_TYPES)}, or a list of these; found {value!r:.80}")


def _check_required(value: Any, place: str, part: Schema) -> None:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InputError(f"{place}: expected a list of names of properties; found {value!r:.80}")
    _check_constant(value, place, part)


def _check_enum(value: Any, place: str, part: Schema) -> None:
    if not isinstance(value, list):
        raise InputError(f"{place}: expected a list of values; found {value!r:.80}")
    _check_constant(value, place, part)


def _check_size(value: Any, place: str, part: Schema) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{place}: expected a whole number of at least 0; found {value!r:.80}")


def _check_number(value: Any, place: str, part: Schema) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{place}: expected a number; found {value!r:.80}")


def _check_divisor(value: Any, place: str, part: Schema) -> None:
    _check_number(value, place, part)
    if value <= 0:
        raise InputError(f"{place}: expected a number above 0; found {value!r:.80}")


def _check_count(value: Any, place: str, part: Schema) -> None:
    """Beyond one more than is required the library counts a key that comes twice as two, and JSON as one."""
    _check_size(value, place, part)
    required = part.get("required", []) if isinstance(part, Mapping) else []
    distinct = len({*map(str, required)}) if isinstance(required, Sequence) else 0
    if value > distinct + 1:
        raise InputError(
            f"{place}: minProperties {value} is not supported beside {distinct} required properties, at most "
            f"{distinct + 1} is: name more properties in `required`"
        )


_CHECKS: Final[Mapping[str, Callable[[Any, str, Schema], None]]] = {
    "$ref": _check_reference,
    "format": _check_format,
    "pattern": _check_pattern,
    "patternProperties": _check_patterns,
    "properties": _check_mapping,
    "$defs": _check_mapping,
    "definitions": _check_mapping,
    "anyOf": _check_list,
    "oneOf": _check_list,
    "allOf": _check_list,
    "prefixItems": _check_list,
    "type": _check_type,
    "enum": _check_enum,
    "const": _check_constant,
    "required": _check_required,
    "minProperties": _check_count,
    "maxProperties": _check_size,
    "minItems": _check_size,
    "maxItems": _check_size,
    "minLength": _check_size,
    "maxLength": _check_size,
    "minimum": _check_number,
    "maximum": _check_number,
    "exclusiveMinimum": _check_number,
    "exclusiveMaximum": _check_number,
    "multipleOf": _check_divisor,
}
