"""Grammars, schemas, expressions and choices: compiled by workers within their limits, and walked under their masks.

An input is a JSON object with a kind, the specification, and a seed of the walk. The text of a walk that comes to its
end is of the language: JSON that the schema allows, or one of the choices.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from lang_core import InputError
from tapeline.grammar import (
    Choices,
    GrammarLimits,
    GrammarSpec,
    JsonObject,
    JsonSchema,
    LarkGrammar,
    RegularExpression,
    compile_constraint,
)
from tapeline.grammar._walks_testing import satisfies, saved
from tapeline.text import Tokenizer, _samples_testing
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target

_END = 0
_STEPS = 12
_LIMITS = GrammarLimits(characters=20_000, depth=32, choices=200)
_SCHEMAS: tuple[Any, ...] = (
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
    {"type": "object", "properties": {"k": {"enum": ["x", 1, None]}, "l": {"const": "c"}}, "required": ["k", "l"]},
    {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 1, "maxItems": 2},
    {"anyOf": [{"type": "boolean"}, {"type": "number", "minimum": -3, "maximum": 7.5}]},
    {"$defs": {"n": {"type": ["null", "object"], "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
    {"type": "string", "pattern": "^[ab]{1,3}$"},
    {"type": "string", "format": "date"},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "exclusiveMaximum": 100},
    {"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 1},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": False},
    {"allOf": [{"type": "object", "properties": {"a": {}}}, {"properties": {"b": {"type": "string"}}}]},
    True,
)
_REGEXES = ("[ab]+c?", r"\d{1,3}(\.\d+)?", "(yes|no) *", r"(?i)a\x41[^b-d]{2}", "a*b*")
_LARKS = (
    'start: "a" | "b" start',
    'start: A b*\nA: /[a-z]+/\nb: "," A',
    'start: "{" [pair ("," pair)*] "}"\npair: K ":" V\nK: /[a-c]/\nV: /[0-9]{1,2}/',
    "start: @json\n%import common.INT\n",
    'start: x{1,3}\nx: "ab"i | %json {"type": "integer"}',
)
_PIECES = (
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "{1,3}",
        "{1000}",
        "*",
        "+",
        "?",
        "|",
        "\\d",
        "\\w",
        "\\p{L}",
        ".",
        "^",
        "$",
        "&",
        "~",
    ),
    *(
        "(?i)",
        "(?s:.)",
        "(?=a)",
        "\\1",
        "[^a]",
        "\\x",
        "é",
        '"',
        "'",
        "/",
        "\n",
        ": ",
        "start",
        "A",
        "b",
        "@json",
        "%json",
    ),
    *(
        "%import common.INT",
        "%ignore / /",
        "/y+//y+/",
        '"x"*',
        "[lazy]",
        "[temperature=1]",
        "#",
        "//",
        ",",
        "a",
        "\\u",
        " ",
    ),
)
_KEYS = (
    *("type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems", "enum"),
    *(
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "$ref",
        "$defs",
        "pattern",
        "format",
        "minLength",
        "maxLength",
        "minimum",
    ),
    *(
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "uniqueItems",
        "patternProperties",
        "minProperties",
    ),
    *("maxProperties", "title", "default", "propertyNames", "if", "then", "kind", "spec", "seed", "$id", "nullable"),
)
_VALUES = (
    *(
        "object",
        "array",
        "string",
        "integer",
        "number",
        "boolean",
        "null",
        ["null", "string"],
        "#",
        "#/$defs/n",
        "date-time",
    ),
    *(
        "uuid",
        "^a+$",
        "(a+)+$",
        "email",
        {"type": "integer"},
        {"type": "string"},
        {"$ref": "#"},
        {"enum": ["a", "b"]},
        ["a"],
    ),
    *(0.1, 3, 999_983, 1e-9, {"n": {"type": "integer"}}, "schema", "regex", "lark", "choices", "json"),
)
_TOKENIZER: list[Tokenizer] = []


def _tokenizer() -> Tokenizer:
    if not _TOKENIZER:
        _TOKENIZER.append(saved(_samples_testing.byte_level(), Path.cwd()))
    return _TOKENIZER[0]


def _seeds() -> list[bytes]:
    specs: list[tuple[str, Any]] = [("schema", schema) for schema in _SCHEMAS]
    specs += [("regex", text) for text in _REGEXES] + [("lark", text) for text in _LARKS]
    specs += [("choices", ["yes", "no", "é"]), ("json", None)]
    return [json.dumps({"kind": kind, "spec": spec, "seed": 1}).encode() for kind, spec in specs]


def _mutate(data: bytes, draw: Random) -> bytes:
    try:
        document = json.loads(data)
        text, kind = document["spec"], document["kind"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return data
    if not isinstance(text, str) or draw.random() < 0.1:
        if kind == "schema" and draw.random() < 0.9:
            spec = json.loads(mutate_json(json.dumps([text]).encode(), draw, _VALUES, _KEYS))
            return json.dumps({**document, "spec": spec[0] if isinstance(spec, list) and spec else spec}).encode()
        return mutate_json(data, draw, _VALUES, _KEYS)
    for _ in range(draw.choice((1, 1, 2, 4))):
        start = draw.randrange(len(text) + 1)
        stop = min(len(text), start + draw.choice((0, 0, 0, 1, 3, 9)))
        text = text[:start] + draw.choice(("", *_PIECES, *_PIECES)) + text[stop:]
    return json.dumps({**document, "spec": text, "seed": draw.randrange(100)}).encode()


def _spec(kind: object, value: Any) -> GrammarSpec | None:
    if kind == "schema":
        return JsonSchema(value)
    if kind == "regex" and isinstance(value, str):
        return RegularExpression(value)
    if kind == "lark" and isinstance(value, str):
        return LarkGrammar(value, {"json": {"type": "null"}})
    if kind == "choices" and isinstance(value, list) and all(isinstance(text, str) for text in value):
        return Choices(value)
    return JsonObject() if kind == "json" else None


def _run(data: bytes) -> bool:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    spec = _spec(document.get("kind"), document.get("spec")) if isinstance(document, dict) else None
    if spec is None:
        return False
    seed = document.get("seed")
    constraint = compile_constraint(spec, _tokenizer(), {_END}, _LIMITS)
    text = _walked(constraint, np.random.default_rng(seed if type(seed) is int and 0 <= seed < 2**32 else 0))
    if text is not None:
        _check(spec, text)
    return True


def _walked(constraint: Any, generator: np.random.Generator) -> str | None:
    """Returns the text of a random walk; None if it has not come to its end, or can go on in no way."""
    tokenizer, ids = _tokenizer(), list[int]()
    out = np.zeros(tokenizer.vocabulary_size, np.bool_)
    for _ in range(_STEPS):
        try:
            constraint.mask(out)
        except InputError:
            return None
        allowed = np.flatnonzero(out)
        if not len(allowed):
            raise AssertionError(f"no token is allowed after {tokenizer.decode(ids)!r}, and no error says so")
        chosen = _END if out[_END] and generator.random() < 0.5 else int(generator.choice(allowed))
        constraint.accept(chosen)
        if chosen == _END:
            return tokenizer.decode(ids)
        ids.append(chosen)
    return None


def _plain(value: Any) -> Any:
    """Returns a value in which whole numbers are integers: 0 and 0.0 are the same in JSON."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check(spec: GrammarSpec, text: str) -> None:
    if isinstance(spec, Choices) and text not in spec.texts:
        raise AssertionError(f"{text!r} is none of the choices")
    if isinstance(spec, JsonObject) and not isinstance(json.loads(text), dict):
        raise AssertionError(f"{text!r} is no JSON object")
    if isinstance(spec, JsonSchema) and not satisfies(_plain(json.loads(text)), _plain(spec.schema)):
        raise AssertionError(f"{text!r} is not what the schema allows")


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
