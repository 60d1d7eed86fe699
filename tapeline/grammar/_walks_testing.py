"""Random walks under a constraint's mask, and a check of JSON schemas, for the tests."""

import json
import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from tapeline.grammar import GrammarConstraint
from tapeline.text import Tokenizer

# Texts that bring JSON to an end, best first: between values, and inside a string.
_CLOSING = ("}", "]", ":", ",", '"')
_QUOTE = ('"',)


def walk(
    constraint: GrammarConstraint,
    tokenizer: Tokenizer,
    ends: frozenset[int],
    generator: np.random.Generator,
    patience: int,
    marks: Collection[int] = (),
) -> tuple[list[int], bool]:
    """Draws allowed tokens, all alike, until one ends the answer; after some, marks, and what closes what is open.

    Returns:
        The ids before the end, and whether there was an end: not every language has one in reach.
    """
    out = np.zeros(tokenizer.vocabulary_size + 7, np.bool_)
    ids: list[int] = []
    while len(ids) < 4 * patience:
        constraint.mask(out)
        allowed = np.flatnonzero(out)
        assert not out[tokenizer.vocabulary_size :].any()
        better = _closing(allowed, tokenizer, {*ends, *marks}) if len(ids) >= patience else []
        chosen = int(better[0] if better else generator.choice(allowed))
        constraint.accept(chosen)
        if chosen in ends:
            assert constraint.finished
            return ids, True
        ids.append(chosen)
    return ids, False


def _closing(allowed: np.ndarray, tokenizer: Tokenizer, first: Collection[int]) -> list[int]:
    """Returns those of the allowed tokens that bring an answer to its end, best first."""
    by_text = {tokenizer.decode([int(index)]).strip(): int(index) for index in allowed}
    order = _QUOTE if "k" in by_text else _CLOSING
    return [*(int(index) for index in allowed if index in first), *(by_text[text] for text in order if text in by_text)]


def saved(inner: tokenizers.Tokenizer, directory: Path) -> Tokenizer:
    """Returns a tokenizer of the library as one of a directory."""
    inner.save(str(directory / "tokenizer.json"))
    return Tokenizer.load(directory)


def text_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the ids of a text that goes on from another one, without a space before it."""
    ids: list[int] = []
    for character in text:
        ids += tokenizer.encode(f"{character}", special_tokens=False)
    return ids


def satisfies(value: Any, schema: Any, root: Any = None) -> bool:
    """Returns whether a value is what a JSON schema allows, for the keywords that are supported."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and not satisfies(value, _referred(root, schema["$ref"]), root):
        return False
    if not all(satisfies(value, part, root) for part in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(satisfies(value, part, root) for part in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(satisfies(value, part, root) for part in schema["oneOf"]) != 1:
        return False
    return _scalars(value, schema) and _objects(value, schema, root) and _arrays(value, schema, root)


def _referred(root: Any, reference: str) -> Any:
    part = root
    for key in reference.removeprefix("#").split("/")[1:]:
        part = part[key]
    return part


def _kind(value: Any) -> set[str]:
    kinds = {bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, str: {"string"}, list: {"array"}}
    return kinds.get(type(value), {"object"} if isinstance(value, dict) else {"null"})


def _scalars(value: Any, schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", _kind(value))
    if not _kind(value) & ({kinds} if isinstance(kinds, str) else set(kinds)):
        return False
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return False
    if "const" in schema and not _same(value, schema["const"]):
        return False
    if isinstance(value, str):
        length = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        return length and re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(Decimal(json.dumps(value)), schema)
    return True


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _number(value: Decimal, schema: Mapping[str, Any]) -> bool:
    bounds = {key: Decimal(json.dumps(schema[key])) for key in schema if key.endswith("imum") or key == "multipleOf"}
    return (
        value >= bounds.get("minimum", value)
        and value <= bounds.get("maximum", value)
        and ("exclusiveMinimum" not in bounds or value > bounds["exclusiveMinimum"])
        and ("exclusiveMaximum" not in bounds or value < bounds["exclusiveMaximum"])
        and ("multipleOf" not in bounds or value % bounds["multipleOf"] == 0)
    )


def _objects(value: Any, schema: Mapping[str, Any], root: Any) -> bool:
    if not isinstance(value, dict):
        return True
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        return False
    return set(schema.get("required", ())) <= set(value) and all(
        satisfies(inner, part, root) for key, inner in value.items() for part in _parts_of(key, schema)
    )


def _parts_of(key: str, schema: Mapping[str, Any]) -> list[Any]:
    named = [schema["properties"][key]] if key in schema.get("properties", ()) else []
    matched = [part for pattern, part in schema.get("patternProperties", {}).items() if re.search(pattern, key)]
    return [*named, *matched] or [schema.get("additionalProperties", True)]


def _arrays(value: Any, schema: Mapping[str, Any], root: Any) -> bool:
    if not isinstance(value, list):
        return True
    prefix = schema.get("prefixItems", [])
    pairs = [*zip(value, prefix, strict=False), *((inner, schema.get("items", True)) for inner in value[len(prefix) :])]
    size = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
    return size and all(satisfies(inner, part, root) for inner, part in pairs)
