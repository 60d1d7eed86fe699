"""Specifications that cannot be held to: refused, with the place."""

import doctest
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import InputError
from tapeline.grammar import (
    Choices,
    GrammarLimits,
    GrammarSpec,
    JsonObject,
    JsonSchema,
    LarkGrammar,
    RegularExpression,
    _messages,
    _sources,
    compile_constraint,
)
from tapeline.grammar._walks_testing import saved
from tapeline.text import Tokenizer, _samples_testing


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One of byte-level BPE."""
    return saved(_samples_testing.byte_level(), tmp_path_factory.mktemp("tokenizer"))


# One of each class of keyword that JSON Schema has, in every draft, and that is not obeyed.
@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("not", {}),
        ("if", True),
        ("then", True),
        ("else", True),
        ("contains", {}),
        ("minContains", 1),
        ("maxContains", 1),
        ("uniqueItems", True),
        ("propertyNames", {}),
        ("dependencies", {}),
        ("dependentRequired", {}),
        ("dependentSchemas", {}),
        ("unevaluatedItems", False),
        ("unevaluatedProperties", False),
        ("contentEncoding", "base64"),
        ("contentMediaType", "image/png"),
        ("contentSchema", {}),
        ("$anchor", "a"),
        ("$dynamicRef", "#a"),
        ("$dynamicAnchor", "a"),
        ("$recursiveRef", "#"),
        ("$recursiveAnchor", True),
        ("$vocabulary", {}),
        ("id", "a"),
        ("extends", {}),
        ("disallow", "string"),
        ("divisibleBy", 2),
        ("nullable", True),
        ("minimun", 3),
        ("x-guidance", {"lenient": True}),
    ],
)
def test_keywords_that_are_not_obeyed(keyword: str, value: Any, tokenizer: Tokenizer) -> None:
    schema = {"type": "object", "properties": {"a/b": {"items": {keyword: value}}}}
    message = rf"json_schema at #/properties/a~1b/items: keyword '{keyword.replace('$', '[$]')}' is not supported"
    with pytest.raises(InputError, match=message):
        compile_constraint(JsonSchema(schema), tokenizer, [0])


_DEEP: Any = {"type": "integer"}
for _ in range(70):
    _DEEP = {"type": "array", "items": _DEEP}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (3, "json_schema at #: expected a schema, which is an object, true or false; found 3"),
        ({"items": [1]}, "json_schema at #/items/0: expected a schema, .*found 1"),
        ({"properties": {"a": 1}}, "json_schema at #/properties/a: expected a schema"),
        ({"properties": 1}, "json_schema at #/properties: expected an object of schemas; found 1"),
        ({"anyOf": {}}, "json_schema at #/anyOf: expected a list of schemas; found {}"),
        ({"minimun": 3}, "keyword 'minimun' is not supported; did you mean 'minimum'"),
        ({"properties": {"a": {"$id": "x"}}}, r"#/properties/a: keyword '\$id' is not supported"),
        ({"type": "frob"}, "json_schema at #/type: expected string, .* or object, or a list of these; found 'frob'"),
        ({"properties": {"a": {"minLength": "x"}}}, "json_schema at #/properties/a/minLength: expected a whole number"),
        ({"$ref": "#/nope"}, "json_schema at #: Pointer '/nope' does not exist"),
        ({"$ref": "http://x/y"}, r"json_schema at #/\$ref: expected a reference inside .*nothing is fetched"),
        ({"$ref": 3}, r"json_schema at #/\$ref: expected a reference inside .*found 3"),
        ({"format": "frob"}, "json_schema at #/format: format 'frob' is not supported; supported: date, .* or uuid"),
        ({"format": ["date"]}, r"json_schema at #/format: format \['date'\] is not supported"),
        ({"pattern": 3}, "json_schema at #/pattern: expected a regular expression; found 3"),
        ({"pattern": "(?i)a"}, r"json_schema at #/pattern: '\(\?i\)' is not supported: flags"),
        ({"pattern": "[[:alpha:]]"}, r"json_schema at #/pattern: '\[\[' is not supported"),
        ({"pattern": "[a-z&&b]"}, "json_schema at #/pattern: '.*&&' is not supported"),
        ({"patternProperties": {"(?i)a": {}}}, r"json_schema at #/patternProperties/.*: '\(\?i\)' is not supported"),
        ({"type": "string", "pattern": "a(?=b)"}, "json_schema at #: .*look-ahead and look-behind, is not supported"),
        ({"pattern": r"\bx"}, "json_schema at #: lookarounds not supported"),
        ({"pattern": r"(a)\1"}, "json_schema at #: .*backreferences are not supported"),
        ({"const": {"a": ["\x01"]}}, r"json_schema at #/const: character U\+0001 of .* is not supported: JSON has no"),
        ({"enum": ["\ud800"]}, "json_schema at #/enum: .* is not valid Unicode"),
        ({"properties": {"\x7f": {}}}, r"json_schema at #/properties/\x7f: character U\+007F"),
        ({"required": ["\x00"]}, r"json_schema at #/required: character U\+0000"),
        ({"minProperties": 2}, "json_schema at #/minProperties: minProperties 2 is not supported beside 0 required"),
        ({"oneOf": [{"type": "string"}, {"enum": ["a"]}]}, "json_schema at #: oneOf constraints are not supported"),
        ({"patternProperties": {"a": {"type": "null"}, "b": {}}}, "json_schema at #: patternProperty .* not disjoint"),
        ({"maximum": float("inf")}, r"json_schema: expected a schema of JSON values \(Out of range"),
        ({"title": {1, 2}}, r"json_schema: expected a schema of JSON values \(Object of type set"),
        ({"title": "\ud800"}, "json_schema: expected a schema of JSON values .*surrogates"),
        ({"title": "x" * 200_000}, "json_schema: 200,013 characters, more than the 200,000 allowed: shorten it"),
        (_DEEP, "json_schema at #(/items){33}/: schemas may nest 64 levels deep, and this is deeper: flatten it"),
    ],
)  # fmt: skip
def test_schemas_that_are_refused(schema: Any, message: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=message):
        compile_constraint(JsonSchema(schema), tokenizer, [0], GrammarLimits())


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (False, "json_schema: Unsatisfiable schema: schema is false"),
        ({"enum": []}, "#: Unsatisfiable schema"),
        ({"type": []}, "#: Unsatisfiable schema"),
        ({"anyOf": [False]}, "#: Unsatisfiable schema"),
        ({"type": "string", "enum": [1]}, "#: Unsatisfiable schema: incompatible types"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, r"#: Unsatisfiable schema: minimum \(5\)"),
        ({"minItems": 3, "maxItems": 1, "type": "array"}, "#: Unsatisfiable schema: minItems"),
        ({"type": "object", "required": ["a"], "properties": {"a": False}}, "#: .*required property 'a' is unsat"),
        ({"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 2, "maxLength": 1}}, "#.*: Unsatis"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, r"#/\$defs/a: it needs itself, so that no"),
        ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "#/properties/a: it needs itself"),
        ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, "#/items: it needs itself"),
        ({"type": "array", "minItems": 1, "prefixItems": [{"$ref": "#"}]}, "#/prefixItems/0: it needs itself"),
        ({"anyOf": [{"$ref": "#"}]}, "#/anyOf/0: it needs itself"),
        ({"allOf": [{"$ref": "#"}]}, "#/allOf/0: it needs itself"),
    ],
)  # fmt: skip
def test_impossible_schemas(schema: Any, place: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=place):
        compile_constraint(JsonSchema(schema), tokenizer, [0])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": ["object", "null"], "required": ["a"], "properties": {"a": {"$ref": "#"}}},
        {"type": "array", "items": {"$ref": "#"}},
        {"anyOf": [{"$ref": "#/$defs/a%20b"}], "$defs": {"a b": {"type": "string"}}},
        {"anyOf": [{"type": "array", "minItems": 1, "items": {"$ref": "#"}}, {"const": 1}]},
        {"type": "object", "minProperties": 2, "required": ["a"]},
        {"$id": "http://example.org/a", "$schema": "http://json-schema.org/draft-07/schema#", "x-order": 3},
        {"type": "string", "pattern": r"^[a\]\[]+(?:b)$"},
        True,
    ],
)  # fmt: skip
def test_schemas_that_only_look_so(schema: Any, tokenizer: Tokenizer) -> None:
    assert not compile_constraint(JsonSchema(schema), tokenizer, [0]).finished


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (RegularExpression(""), "regex: expected a text of at least one character; found ''"),
        (RegularExpression("a\ud800"), "regex: character 1 is not valid Unicode: "),
        (RegularExpression("("), "regex: .*unclosed group"),
        (RegularExpression("a(?=b)"), "regex: .*look-ahead and look-behind, is not supported"),
        (RegularExpression("a" * 200_001), "regex: 200,001 characters, more than the 200,000 allowed"),
        (RegularExpression(r"[^\x00-\x{10FFFF}]"), "regex: the grammar allows no text that begins with the tokens so"),
        (LarkGrammar("start: x"), 'grammar: .*unknown name: "x"'),
        (LarkGrammar("x: /a/"), "grammar: no start rule"),
        (LarkGrammar('start: x\nx: x "a"'), "grammar: the grammar allows no text"),
        (LarkGrammar("start: @x"), "grammar: unknown grammar @x"),
        (LarkGrammar("start: <frob>"), "grammar: .*unknown special token"),
        (LarkGrammar('start: a\na: %json {"not": {}}'), "grammar, line 2: %json is not supported: give JSON"),
        (LarkGrammar('%llguidance {"no_forcing": true}\nstart: "a"'), "grammar, line 1: %llguidance is not supported"),
        (LarkGrammar("start: a\na[temperature=0.5]: /a/"), "grammar, line 2: temperature is not supported: it"),
        (LarkGrammar('start: a "b"\na[stop="b"]: /a/'), "grammar, line 2: stop is not supported"),
        (LarkGrammar("start: @x", {"x": {"items": {"not": {}}}}), "x at #/items: keyword 'not' is not supported"),
        (LarkGrammar("start: @x", {"x": {"minLength": "a"}}), "x at #/minLength: expected a whole number"),
        (Choices([]), "choices: expected 1 to 2,000; found 0"),
        (Choices(["a"] * 2001), "choices: expected 1 to 2,000; found 2,001"),
        (Choices(["a", ""]), r"choices\[1\]: expected a text of at least one character"),
    ],
)  # fmt: skip
def test_grammars_that_are_refused(spec: GrammarSpec, message: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=message):
        compile_constraint(spec, tokenizer, [0])


def test_directives_in_strings_are_text(tokenizer: Tokenizer) -> None:
    compile_constraint(LarkGrammar('start: "%json" /[a temperature]/ // %json\n'), tokenizer, [0])


@pytest.mark.parametrize("name", ["word_piece", "word_suffix", "no_decoder"])
def test_tokenizers_whose_tokens_are_no_bytes(name: str, tmp_path: Path) -> None:
    tokenizer = saved(getattr(_samples_testing, name)(), tmp_path)
    with pytest.raises(InputError, match="grammars and JSON need tokens that are bytes, as in byte-level BPE or"):
        compile_constraint(JsonObject(), tokenizer, [0])


_BROKEN = [
    ("type", 7),
    ("type", None),
    ("type", [7]),
    ("type", [["string"]]),
    ("type", {"a": 1}),
    ("type", "text"),
    ("required", 7),
    ("required", [7]),
    ("required", {"a": 1}),
    ("enum", 7),
    ("enum", {"a": 1}),
    ("minItems", "x"),
    ("minItems", 1.5),
    ("maxItems", []),
    ("minLength", -1),
    ("maxLength", True),
    ("minProperties", {}),
    ("maxProperties", None),
    ("minimum", "x"),
    ("exclusiveMaximum", [1]),
    ("multipleOf", "x"),
    ("multipleOf", 0),
    ("$ref", 7),
    ("format", 7),
    ("pattern", 7),
    ("items", 7),
    ("prefixItems", 7),
    ("properties", 7),
    ("anyOf", 7),
    ("allOf", [7]),
    ("additionalProperties", 7),
]


@pytest.mark.parametrize(("keyword", "value"), _BROKEN)
def test_a_keyword_with_a_wrong_value_is_refused_by_its_path(tokenizer: Tokenizer, keyword: str, value: object) -> None:
    unused = {"$defs": {"n": {keyword: value}}, "type": "string"}
    needed = {"$defs": {"n": {keyword: value}, "m": {"type": "string"}}, "$ref": "#/$defs/m"}
    for schema in (unused, needed):
        with pytest.raises(InputError, match=r"json_schema at #/\$defs/n/" + re.escape(keyword)):
            compile_constraint(JsonSchema(schema), tokenizer, {0})


def test_long_names_of_many_properties_take_no_memory(tokenizer: Tokenizer) -> None:
    inner = {"properties": {str(number): {} for number in range(4000)}}
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="the paths of all its schemas have more than 16,777,216 characters"):
            compile_constraint(JsonSchema({"properties": {"a" * 60_000: inner}}), tokenizer, [0])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000_000  # the paths have 240,000,000 characters


def test_an_error_in_a_property_of_a_long_name_is_short(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"a\.\.\.a.*/type: expected string, ") as error:
        compile_constraint(JsonSchema({"properties": {"a" * 60_000: {"type": 7}}}), tokenizer, [0])
    assert len(str(error.value)) < 500


def test_doctests() -> None:
    for module in (_messages, _sources):
        result = doctest.testmod(module)
        assert result.attempted
        assert not result.failed


@pytest.mark.parametrize(
    "text",
    [
        'start: a b\na: "x"*\nb: /y+//y+/',  # no text satisfies b, for the first y+ takes every y
        "start: b\nb: /y+//y+/",
        'start: "x" start',
        'start: "a" | "b" endless\nendless: "cd" endless',
    ],
)
def test_a_grammar_that_forces_an_endless_text_has_masks(tokenizer: Tokenizer, text: str) -> None:
    constraint = compile_constraint(LarkGrammar(text), tokenizer, [1])
    allowed = np.zeros(tokenizer.vocabulary_size, np.bool_)
    for _ in range(200):
        constraint.mask(allowed)
        constraint.accept(int(np.flatnonzero(allowed)[-1]))
    assert not constraint.finished
