"""Specifications as text that llguidance reads."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from llguidance import LLMatcher

from lang_core import LARGE_JSON_BOUNDS, InputError, json_value
from tapeline.grammar._schema import check_schema
from tapeline.grammar._specs import (
    Choices,
    GrammarLimits,
    GrammarSpec,
    JsonObject,
    JsonSchema,
    LarkGrammar,
    RegularExpression,
    Schema,
)

# Bounded, or a model can write spaces for ever; one space, or line breaks and an indentation.
_SPACES: Final = r"( |\n{1,2}[ \t]{0,40})"
# Without \u: a key that it spells otherwise would escape the schema of the property with that name.
_ESCAPES: Final = r"nrbtf\""
_OPTIONS: Final = {"lenient": False, "whitespace_pattern": _SPACES, "json_allowed_escapes": _ESCAPES}

# What a Lark grammar is made of, as far as what may not be in it must be found. Every alternative is linear: a text of
# quotes or brackets is not read again from each of them.
_LARK_TOKENS: Final = re.compile(
    r'(?P<comment>(?://|#)[^\n]*)|"(?:\\.|[^"\\\n])*(?P<quote>"?)|/(?:\\[\s\S]|[^/\\])+(?P<slash>/?)'
    r"|(?P<directive>%(?:json|llguidance|lark)\b)|(?P<bracket>[\[\]])|\b(?P<option>temperature|stop|max_tokens)\b"
)
# The library looks ahead for bytes that the grammar forces, without a bound: after "y" in /y+//y+/, which no text
# satisfies, that is "y" for ever.
_UNFORCED: Final = '%llguidance {"no_forcing": true}\n'
_DIRECTIVES: Final = "give JSON schemas as `json_schema`"
_OBEYED: Final = "it would not be obeyed"


def source_of(spec: GrammarSpec, limits: GrammarLimits, *, forces: bool = True) -> str:
    """Returns a specification in llguidance's own format, which is also its key in caches.

    Args:
        spec: specification.
        limits: its bounds.
        forces: True gives a text that the grammar forces the tokens that the tokenizer gives that text. False allows
            any tokens: if the text has that of a special token, the tokenizer gives the special token, which does
            not stand for its text. Lark grammars say themselves.

    Raises:
        InputError: it is empty, too large, or has features that would not be enforced.
    """
    source = _SOURCES[type(spec)](spec, limits)
    return source if forces or isinstance(spec, LarkGrammar) else _unforced(source)


def _unforced(source: str) -> str:
    if not source.startswith("{"):
        return f"{source}\n{_UNFORCED}"
    grammars = json_value(source, LARGE_JSON_BOUNDS)["grammars"]
    first = grammars[0]
    if "lark_grammar" in first:
        first["lark_grammar"] += f"\n{_UNFORCED}"
    else:
        first["name"] = "the_schema"
        grammars.insert(0, {"lark_grammar": f"start: @the_schema\n{_UNFORCED}"})
    return json.dumps({"grammars": grammars}, ensure_ascii=False)


def schema_source(schema: Schema) -> str:
    """Returns the grammar of a schema that was checked.

    >>> schema_source(True) == schema_source({})
    True
    """
    return LLMatcher.grammar_from_json_schema(json.dumps(_with_options(schema), ensure_ascii=False))


def _object(spec: JsonObject, limits: GrammarLimits) -> str:
    return schema_source({"type": "object"})


def _schema(spec: JsonSchema, limits: GrammarLimits) -> str:
    _check_schema(spec.schema, "json_schema", limits)
    return schema_source(spec.schema)


def _regex(spec: RegularExpression, limits: GrammarLimits) -> str:
    _check_text(spec.pattern, "regex", limits)
    return LLMatcher.grammar_from_regex(spec.pattern)


def _lark(spec: LarkGrammar, limits: GrammarLimits) -> str:
    _check_text(spec.text, "grammar", limits)
    _refuse_unobeyed(spec.text)
    grammars: list[Mapping[str, Any]] = [{"lark_grammar": spec.text if spec.ends else f"{spec.text}\n{_UNFORCED}"}]
    for name, schema in spec.schemas.items():
        _check_schema(schema, name, limits)
        grammars.append({"name": name, "json_schema": _with_options(schema)})
    return json.dumps({"grammars": grammars}, ensure_ascii=False)


def _refuse_unobeyed(text: str) -> None:
    """Refuses directives, and options in brackets behind the name of a rule."""
    inside = False
    for token in _LARK_TOKENS.finditer(text):
        if token["bracket"]:
            inside = token["bracket"] == "["
        elif token["directive"]:
            raise InputError(f"grammar, {_line(token)}: {token['directive']} is not supported: {_DIRECTIVES}")
        elif token["option"] and inside:
            raise InputError(f"grammar, {_line(token)}: {token['option']} is not supported: {_OBEYED}")
        elif token["quote"] == "" or token["slash"] == "":
            raise InputError(f"grammar, {_line(token)}: {token[0][:40]!r} has no end: close it")


def _line(token: re.Match[str]) -> str:
    return f"line {token.string.count(chr(10), 0, token.start()) + 1}"


def _choices(spec: Choices, limits: GrammarLimits) -> str:
    texts = list(spec.texts)
    if not 1 <= len(texts) <= limits.choices:
        raise InputError(f"choices: expected 1 to {limits.choices:,}; found {len(texts):,}")
    for index, text in enumerate(texts):
        _check_text(text, f"choices[{index}]", limits)
    _check_size(sum(map(len, texts)), "choices", limits)
    return LLMatcher.grammar_from_lark("start: " + " | ".join(map(_literal, texts)))


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _check_schema(schema: Schema, name: str, limits: GrammarLimits) -> None:
    check_schema(schema, limits.depth, name)
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name}: expected a schema of JSON values ({error}): leave out what JSON does not have"
        ) from error
    _check_size(len(text), name, limits)


def _check_text(text: str, name: str, limits: GrammarLimits) -> None:
    if not isinstance(text, str) or not text:
        raise InputError(f"{name}: expected a text of at least one character; found {text!r:.80}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name}: character {error.start} is not valid Unicode: {text[error.start]!a}") from error
    _check_size(len(text), name, limits)


def _check_size(size: int, name: str, limits: GrammarLimits) -> None:
    if size > limits.characters:
        raise InputError(f"{name}: {size:,} characters, more than the {limits.characters:,} allowed: shorten it")


def _with_options(schema: Schema) -> dict[str, Any]:
    if isinstance(schema, bool):
        return {"x-guidance": _OPTIONS} if schema else {"x-guidance": _OPTIONS, "anyOf": [False]}
    return {**schema, "x-guidance": _OPTIONS}


_SOURCES: Final[Mapping[type, Callable[[Any, GrammarLimits], str]]] = {
    JsonObject: _object,
    JsonSchema: _schema,
    RegularExpression: _regex,
    LarkGrammar: _lark,
    Choices: _choices,
}
