"""Masks against what they must mean: every walk through them ends in text that the specification allows."""

import json
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lang_core import InputError
from tapeline.grammar import (
    Choices,
    GrammarConstraint,
    JsonObject,
    JsonSchema,
    LarkGrammar,
    RegularExpression,
    compile_constraint,
)
from tapeline.grammar._walks_testing import satisfies, saved, text_ids, walk
from tapeline.text import Tokenizer, _samples_testing

LONG = os.environ.get("TAPELINE_LONG") == "1"
_KINDS = ("byte_level", "byte_fallback", "byte_fallback_without_strip", "metaspace_bytes")


def _metaspace_bytes() -> tokenizers.Tokenizer:
    """Unigram pieces with `▁`, decoded by Metaspace, with a token for each character of JSON."""
    inner = _samples_testing.metaspace()
    inner.add_tokens([*'{}[]":,-.\\0123456789é日', *"abcdefghijklmnopqrstuvwxyz"])
    return inner


@pytest.fixture(scope="module")
def tokenizer_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tokenizer]:
    """Tokenizers by name, each read once."""
    made: dict[str, Tokenizer] = {}

    def get(name: str) -> Tokenizer:
        if name not in made:
            inner = _metaspace_bytes() if name == "metaspace_bytes" else getattr(_samples_testing, name)()
            made[name] = saved(inner, tmp_path_factory.mktemp(name))
        return made[name]

    return get


def _ends(tokenizer: Tokenizer) -> frozenset[int]:
    end = tokenizer.special_id("</s>")
    assert end is not None
    return frozenset({end})


def _texts(spec: Any, tokenizer: Tokenizer, count: int, seed: int = 0) -> list[str]:
    """Returns the texts of random walks, all of which must end."""
    generator = np.random.default_rng(seed)
    ends = _ends(tokenizer)
    texts: list[str] = []
    for _ in range(count):
        ids, ended = walk(compile_constraint(spec, tokenizer, ends), tokenizer, ends, generator, 60)
        assert ended
        texts.append(tokenizer.decode(ids))
    return texts


_SCHEMAS: list[Any] = [
    {"type": "object"},
    {"type": "integer", "minimum": -5, "exclusiveMaximum": 20},
    {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 3},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "pattern": "^(a|tape)+$", "maxLength": 9},
    {"enum": ["a", "ab", 1, 12, None, {"the": [1]}, "\n\"\\é日"]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {"type": "array", "prefixItems": [{"const": 1}, {"type": "null"}], "items": False, "minItems": 1},
    {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}, "b\n": {"enum": ["x"]}},
        "required": ["b\n", "a"],
        "additionalProperties": {"type": "null"},
        "maxProperties": 3,
    },
    {"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1, "additionalProperties": False},
    {"type": "object", "patternProperties": {"^t": {"type": "integer"}}, "additionalProperties": {"const": "x"}},
    {"oneOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}, {"type": "null"}]},
    {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 4}]},
    {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
    {"$defs": {"t": {"enum": [1, 2]}}, "type": "array", "items": {"$ref": "#/$defs/t"}, "maxItems": 2},
    {"type": ["string", "null"], "maxLength": 3},
]  # fmt: skip


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("index", range(len(_SCHEMAS)))
def test_random_walks_satisfy_the_schema(kind: str, index: int, tokenizer_of: Callable[[str], Tokenizer]) -> None:
    schema = _SCHEMAS[index]
    for text in _texts(JsonSchema(schema), tokenizer_of(kind), 200 if LONG else 8, index):
        assert satisfies(json.loads(text), schema), text


def test_random_walks_in_any_object(tokenizer_of: Callable[[str], Tokenizer]) -> None:
    for text in _texts(JsonObject(), tokenizer_of("byte_level"), 20):
        assert isinstance(json.loads(text), dict)


_names = st.sampled_from(["a", "ab", "the", "x/y", "~", "é"])
_letters = st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc"))
_constants = st.one_of(st.text(_letters, max_size=3), st.integers(-9, 99), st.booleans(), st.none())
_counts = st.integers(0, 3)


@st.composite
def _leaves(draw: st.DrawFn) -> Any:
    low, span = draw(_counts), draw(_counts)
    return draw(
        st.sampled_from(
            [
                {"type": "null"},
                {"type": "boolean"},
                {"type": "integer", "minimum": 37 * low - 50, "maximum": 37 * low - 50 + 90 * span},
                {"type": "string", "minLength": low, "maxLength": low + span},
                {"enum": draw(st.lists(_constants, min_size=1, max_size=3))},
            ]
        )
    )


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    @st.composite
    def container(draw: st.DrawFn) -> Any:
        low, span = draw(_counts), draw(_counts)
        parts = draw(st.dictionaries(_names, inner, min_size=1, max_size=3))
        required = [name for name in draw(st.lists(_names, unique=True)) if name in parts]
        fixed = {"type": "object", "properties": parts, "required": required, "additionalProperties": False}
        rows = {"type": "array", "items": next(iter(parts.values())), "minItems": low, "maxItems": low + span}
        return draw(st.sampled_from([fixed, rows, {"anyOf": [*parts.values()]}]))

    return container()


@settings(max_examples=1000 if LONG else 40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schema=st.recursive(_leaves(), _containers, max_leaves=4), seed=st.integers(0, 2**32 - 1))
def test_random_schemas(schema: Any, seed: int, tokenizer_of: Callable[[str], Tokenizer]) -> None:
    for text in _texts(JsonSchema(schema), tokenizer_of("byte_level"), 1, seed):
        assert satisfies(json.loads(text), schema), text


@pytest.mark.parametrize("pattern", ["a|ab|abc", "[0-9]{2,4}", r"(the|a) tape\.", r"\p{Lu}[é日]?", "x*"])
def test_regular_expressions_match_the_whole(pattern: str, tokenizer_of: Callable[[str], Tokenizer]) -> None:
    for text in _texts(RegularExpression(pattern), tokenizer_of("byte_level"), 10):
        assert re.fullmatch(pattern.replace(r"\p{Lu}", r"[^\W\d_]"), text), text


def test_choices(tokenizer_of: Callable[[str], Tokenizer]) -> None:
    texts = ["yes", "no", 'the "tape"', "a\\b\n/*é日🙂", "yes or no"]
    assert set(_texts(Choices(texts), tokenizer_of("byte_level"), 40)) == set(texts)


def test_a_grammar_with_schemas_and_tokens(tokenizer_of: Callable[[str], Tokenizer]) -> None:
    tokenizer = tokenizer_of("byte_level")
    grammar = LarkGrammar('start: <s> "is " @value "!"', {"value": {"type": "integer", "minimum": 1, "maximum": 3}})
    assert set(_texts(grammar, tokenizer, 20)) == {"is 1!", "is 2!", "is 3!"}


def _spelled(constraint: GrammarConstraint, tokenizer: Tokenizer, text: str) -> bool:
    """Returns whether a constraint allows a text, token by token, and then the end."""
    out = np.zeros(tokenizer.vocabulary_size, np.bool_)
    for token in [*text_ids(tokenizer, text), next(iter(_ends(tokenizer)))]:
        constraint.mask(out)
        if not out[token]:
            return False
        constraint.accept(token)
    return True


@pytest.mark.parametrize(
    ("schema", "text", "allowed"),
    [
        ({"type": "object"}, '{\n  "a": [1, 2],\n\n\t"b" : {}\n}', True),
        ({"type": "object"}, ' {"a":1}', False),
        ({"type": "object"}, '{"a":1} ', False),
        ({"type": "object"}, '{  "a":1}', False),
        # A key by an escape would have no schema of its own.
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, r'{"\u0061":"x"}', False),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a":"x"}', False),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a":1,"a":2}', False),
        ({"type": "string", "format": "date"}, '"2023-02-30"', False),
        ({"type": "string", "format": "date"}, '"2023-02-28"', True),
        ({"type": "string", "pattern": "^.$"}, r'"\n"', False),
        ({"type": "string", "maxLength": 1}, '"日"', True),
        ({"type": "integer"}, "01", False),
        ({"items": [{"type": "string"}], "type": "array"}, "[1]", False),
    ],
)
def test_texts_token_by_token(schema: Any, text: str, allowed: bool, tokenizer_of: Callable[[str], Tokenizer]) -> None:
    tokenizer = tokenizer_of("byte_level")
    assert _spelled(compile_constraint(JsonSchema(schema), tokenizer, _ends(tokenizer)), tokenizer, text) == allowed


def test_ends_only_where_the_text_is_complete(tokenizer_of: Callable[[str], Tokenizer]) -> None:
    tokenizer = tokenizer_of("byte_level")
    size = tokenizer.vocabulary_size
    beyond = size + 2  # an end token that the model has and the tokenizer does not
    constraint = compile_constraint(RegularExpression("ab?"), tokenizer, {0, beyond})
    out = np.ones(size + 5, np.bool_)
    first, second = text_ids(tokenizer, "ab")
    for complete, token in ((False, first), (True, second), (True, 0)):
        constraint.mask(out)
        assert [out[0], out[beyond]] == [complete] * 2
        assert not out[[size, size + 1, size + 3, size + 4]].any()
        constraint.accept(token)
    assert constraint.finished
    constraint.mask(out)
    assert set(np.flatnonzero(out)) == {0, beyond}


def test_finished_before_the_end_token(tokenizer_of: Callable[[str], Tokenizer]) -> None:
    tokenizer = tokenizer_of("byte_level")
    constraint = compile_constraint(Choices(["a"]), tokenizer, ())
    assert not constraint.finished
    constraint.accept(text_ids(tokenizer, "a")[0])
    assert constraint.finished
    out = np.ones(tokenizer.vocabulary_size, np.bool_)
    constraint.mask(out)
    assert not out.any()


def test_a_smaller_model_has_a_smaller_mask(tokenizer_of: Callable[[str], Tokenizer]) -> None:
    tokenizer = tokenizer_of("byte_level")
    out = np.zeros(20, np.bool_)
    compile_constraint(JsonObject(), tokenizer, {300}).mask(out)  # { is beyond it, and so is the end
    assert not out.any()


def test_tokens_that_are_not_allowed(tokenizer_of: Callable[[str], Tokenizer]) -> None:
    tokenizer = tokenizer_of("byte_level")
    a, b = text_ids(tokenizer, "ab")
    with pytest.raises(InputError, match="token 0 ends the answer before the text satisfies the grammar"):
        compile_constraint(Choices(["a"]), tokenizer, {0}).accept(0)
    constraint = compile_constraint(Choices(["a"]), tokenizer, {0})
    with pytest.raises(InputError, match=f"token {b} is not allowed by the grammar here"):
        constraint.accept(b)
    with pytest.raises(InputError, match="too complex to go on"):  # the error is final
        constraint.mask(np.zeros(tokenizer.vocabulary_size, np.bool_))
    constraint = compile_constraint(Choices(["a"]), tokenizer, {0})
    for token in (a, 0):
        constraint.accept(token)
    with pytest.raises(InputError, match="the answer has ended"):
        constraint.accept(a)


def test_a_dead_end_is_an_error_and_no_end(tokenizer_of: Callable[[str], Tokenizer]) -> None:
    """The library's mask allows the end there; the answer would look complete."""
    tokenizer = tokenizer_of("byte_level")
    grammar = LarkGrammar("start: /a/ dead\ndead: /[^\\x00-\\x{10FFFF}]/")
    with pytest.raises(InputError, match="the grammar allows no text that begins with the tokens so far"):
        _spelled(compile_constraint(grammar, tokenizer, {0}), tokenizer, "a")


def test_expressions_that_explode_are_an_error(tokenizer_of: Callable[[str], Tokenizer]) -> None:
    tokenizer = tokenizer_of("byte_level")
    with pytest.raises(InputError, match=r"the grammar is too complex to go on \(lexer error: .*\): simplify it"):
        _spelled(compile_constraint(RegularExpression("(a{1000}){1000}"), tokenizer, {0}), tokenizer, "aaaaaaaa")
