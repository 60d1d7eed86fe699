"""The OpenAPI document says what the readers take."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeline.server._app import ROUTES
from tapeline.server._errors import RequestError
from tapeline.server._openapi import POSTS, document
from tapeline.server._records import RecordType, fields_of, read_record

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-30, 200) | st.floats(-3, 120) | st.sampled_from(["", "a", "text", "user"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "role", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def allows(schema: Any, value: Any) -> bool:
    """Returns whether a schema allows a value, by the keywords that the document uses."""
    checks = {
        "anyOf": lambda parts: any(allows(part, value) for part in parts),
        "enum": lambda values: any(type(value) is type(one) and value == one for one in values),
        "type": lambda kind: is_of(kind, value),
        "minimum": lambda least: value >= least,
        "exclusiveMinimum": lambda least: value > least,
        "maximum": lambda most: value <= most,
        "minLength": lambda least: len(value) >= least,
        "minItems": lambda least: len(value) >= least,
        "maxItems": lambda most: len(value) <= most,
        "maxProperties": lambda most: len(value) <= most,
        "required": lambda names: all(value.get(name) is not None for name in names),
        "items": lambda item: all(allows(item, one) for one in value),
        "properties": lambda named: all(allows(named[name], one) for name, one in value.items() if name in named),
        "additionalProperties": lambda rest: all(
            allows(rest, one) for name, one in value.items() if name not in schema.get("properties", {})
        ),
    }
    keywords = sorted((key for key in schema if key in checks), key=lambda key: key != "type")
    return all(checks[key](schema[key]) for key in keywords)


def is_of(kind: str, value: Any) -> bool:
    types: dict[str, Any] = {
        "integer": int,
        "number": int | float,
        "string": str,
        "boolean": bool,
        "array": list,
        "object": dict,
        "null": type(None),
    }
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, types[kind]) and isinstance(value, bool) == (kind == "boolean")


def is_read(kind: type[RecordType], given: Any) -> bool:
    try:
        read_record(kind, given)
    except RequestError:
        return False
    return True


def test_every_route_is_in_the_document() -> None:
    paths = document()["paths"]
    routes = {route.path.replace(":path", "") for route in ROUTES}
    assert set(paths) == routes
    assert all(next(iter(paths[path])) == "post" for path in POSTS)


@pytest.mark.parametrize("path", POSTS)
def test_a_field_is_read_where_its_schema_allows_the_value(path: str) -> None:
    kind, _ = POSTS[path]
    schema = document(strict=True)["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert list(schema["properties"]) == list(fields_of(kind))
    alone = {**schema, "required": []}

    @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.dictionaries(st.sampled_from([*fields_of(kind), "unknown"]), JSON, min_size=1, max_size=2))
    def run(given: dict[str, Any]) -> None:
        missing = set(schema.get("required", ())) - set(given)
        if not missing:
            assert is_read(kind, given) == allows(schema, given)
        elif not allows(alone, given):
            assert not is_read(kind, given)

    run()
