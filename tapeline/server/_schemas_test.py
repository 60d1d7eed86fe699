"""Schemas of clients: translated to what grammars hold answers to."""

import json
from typing import Any

import numpy as np
import pytest

from tapeline.server._constraints import HeldAnswer
from tapeline.server._numbers import NumberBound
from tapeline.server._schemas import client_schema
from tapeline.text import Tokenizer, _samples_testing


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, True),
        ({}, {}),
        ({"type": "object"}, {"type": "object"}),
        ({"type": "integer", "format": "int32"}, {"type": "integer"}),
        ({"type": "string", "format": "uuid"}, {"type": "string", "format": "uuid"}),
        ({"type": "string", "contentMediaType": "image/png"}, {"type": "string"}),
        (_object(a={}), {**_object(a={}), "additionalProperties": False}),
        ({**_object(a={}), "additionalProperties": True}, {**_object(a={}), "additionalProperties": True}),
        ({**_object(a={}), "additionalProperties": {}}, {**_object(a={}), "additionalProperties": {}}),
        (
            {"items": _object(a=_object(b=True))},
            {"items": {**_object(a={**_object(b=True), "additionalProperties": False}), "additionalProperties": False}},
        ),
        ({"allOf": [_object(a={}), _object(b={})]}, {"allOf": [_object(a={}), _object(b={})]}),
        ({"allOf": [_object(a={})]}, {"allOf": [{**_object(a={}), "additionalProperties": False}]}),
        (
            {"anyOf": [_object(a={}), {"type": "null"}]},
            {"anyOf": [{**_object(a={}), "additionalProperties": False}, {"type": "null"}]},
        ),
        ({**_object(a={}), "anyOf": [_object(b={})]}, {**_object(a={}), "anyOf": [_object(b={})]}),
        (
            {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": _object(), "b": _object()}},
            {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": _object(), "b": _object()}},
        ),
        ({"type": "string", "nullable": True}, {"type": ["null", "string"]}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        ({"type": "string", "enum": ["a"], "nullable": True}, {"type": ["null", "string"], "enum": ["a", None]}),
        ({"$ref": "#/$defs/a", "nullable": True}, {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}),
        ({"type": "array", "uniqueItems": False}, {"type": "array"}),
        ({"type": "array", "uniqueItems": True, "maxItems": 1}, {"type": "array", "maxItems": 1}),
        ({"propertyNames": {"type": "string"}}, {}),
        (
            {"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": {"type": "integer"}},
            {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False},
        ),
        (
            {"type": "object", "propertyNames": {"pattern": "^a$"}},
            {"type": "object", "patternProperties": {"^a$": True}, "additionalProperties": False},
        ),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"oneOf": [{"const": 1}, {"enum": [2, 3]}]}, {"anyOf": [{"const": 1}, {"enum": [2, 3]}]}),
        (
            {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^(?!^[-+.]*$)\d*$"}]},
            {"anyOf": [{"type": "number"}]},
        ),
        ({"type": "string", "pattern": "(?=a)b"}, {"type": "string", "pattern": "(?=a)b"}),
    ],
)
def test_a_schema_is_translated(schema: Any, expected: Any) -> None:
    before = json.dumps(schema)
    translated = client_schema(schema)
    assert translated.schema == expected
    assert not translated.loosened
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": {"uniqueItems": True}}}, "#/properties/a/uniqueItems"),
        ({"propertyNames": {"minLength": 3}}, "#/propertyNames"),
        ({"properties": {"a": {}}, "propertyNames": {"pattern": "a"}}, "#/propertyNames"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "#/oneOf"),
        ({"items": {"oneOf": [_object(a={}), _object(b={})]}}, "#/items/oneOf"),
    ],
)
def test_what_a_grammar_cannot_hold_is_named(schema: Any, place: str) -> None:
    assert client_schema(schema).loosened == (place,)


def test_a_property_that_tells_choices_apart_makes_them_one_of() -> None:
    def kind(name: str) -> dict[str, Any]:
        return {**_object(kind={"const": name}, x={}), "required": ["kind"]}

    definitions = {"a": kind("a"), "b": kind("b")}
    schema = {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": definitions}
    assert not client_schema(schema).loosened
    schema["$defs"]["b"] = kind("a")
    assert client_schema(schema).loosened == ("#/oneOf",)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("tokenizer")
    _samples_testing.byte_level().save(str(directory / "tokenizer.json"))
    return Tokenizer.load(directory)


def _digits_after(tokenizer: Tokenizer, text: str) -> bool:
    """Returns whether another digit may follow a text."""
    constraint = HeldAnswer(None, min_tokens=0, ends=(), numbers=NumberBound(tokenizer, tokenizer.vocabulary_size))
    for letter in text:
        for token in tokenizer.encode(letter, special_tokens=False):
            constraint.accept(token)
    mask = np.zeros(tokenizer.vocabulary_size, bool)
    constraint.mask(mask)
    (digit,) = tokenizer.encode("7", special_tokens=False)
    return bool(mask[digit])


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("", True),
        ("1" * 15, True),
        ("1" * 16, False),
        ("-" + "1" * 16, False),
        ("[" + "1" * 16 + ", 2", True),
        ("0." + "3" * 15, True),
        ("0." + "3" * 16, False),
        ("1" * 16 + ".", True),
        ("1e", True),
        ("1e+9", True),
        ("1e99", False),
        ("1.5E-12", False),
        ('{"' + "1" * 30, True),
        ('{"a\\"' + "1" * 30, True),
        ('{"a": "x", "b": ' + "1" * 16, False),
    ],
)
def test_numbers_have_a_bound(tokenizer: Tokenizer, text: str, more: bool) -> None:
    assert _digits_after(tokenizer, text) == more


def test_a_bound_leaves_the_only_way_open(tokenizer: Tokenizer) -> None:
    bound = NumberBound(tokenizer, tokenizer.vocabulary_size)
    (digit,) = tokenizer.encode("7", special_tokens=False)
    for _ in range(20):
        bound.accept(digit)
    mask = np.zeros(tokenizer.vocabulary_size, bool)
    mask[digit] = True
    bound.mask(mask)
    assert mask[digit]
