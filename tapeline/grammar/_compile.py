"""Specifications to constraints: compiled once, kept, copied for each answer."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from llguidance import LLMatcher, LLParserLimits

from lang_core import InputError
from tapeline.grammar._constraint import GrammarConstraint
from tapeline.grammar._messages import short
from tapeline.grammar._schema import subschemas
from tapeline.grammar._schema_finite import check_finite
from tapeline.grammar._sources import schema_source, source_of
from tapeline.grammar._specs import GrammarLimits, GrammarSpec, JsonSchema, LarkGrammar, Schema
from tapeline.grammar._table import TokenTable, table_of
from tapeline.text import Tokenizer

_KEPT: Final = 64  # compiled grammars per tokenizer
_SEARCHED: Final = 300  # parts of a schema that are compiled alone to name the one at fault
_DEFAULTS: Final = GrammarLimits()
# Fuel: a tenth of the default, so that expressions that explode, such as (a{1000}){1000}, are refused in 50 ms and not
# in 2 s. Items: ten times the default, for objects with thousands of optional properties.
_PARSER: Final = LLParserLimits(initial_lexer_fuel=100_000, max_items_in_row=20_000, verbose_errors=False)


def compile_constraint(
    spec: GrammarSpec, tokenizer: Tokenizer, ends: Iterable[int], limits: GrammarLimits = _DEFAULTS
) -> GrammarConstraint:
    """Returns a new constraint, for one answer.

    The tokenizer's table is built once, which takes long for large vocabularies: call this once when a server starts.
    The last 64 compiled grammars of a tokenizer are kept. Compiling holds no lock of Python's for long, and may be
    done on any thread; the constraint is then used by one.

    Args:
        spec: constraint.
        tokenizer: tokenizer of the model.
        ends: ids that end an answer.
        limits: bounds of the specification.

    Raises:
        InputError: the specification is damaged, contradicts itself, is too large, or uses what is not supported; or
            the tokenizer is of a kind that cannot be constrained.
    """
    table = table_of(tokenizer)
    source = source_of(spec, limits)
    matcher = _kept.get(tokenizer, source)
    if matcher is None:
        matcher = _compiled(spec, source, table)
        _kept.put(tokenizer, source, matcher)
    return GrammarConstraint(matcher.deep_copy(), table, ends)


class _Kept:
    """Compiled grammars by tokenizer and text; of each tokenizer the last ones that were used."""

    def __init__(self) -> None:
        self._matchers: WeakKeyDictionary[Tokenizer, OrderedDict[str, LLMatcher]] = WeakKeyDictionary()
        self._lock: Final = threading.Lock()

    def get(self, tokenizer: Tokenizer, source: str) -> LLMatcher | None:
        with self._lock:
            matchers = self._matchers.get(tokenizer)
            if matchers is None or source not in matchers:
                return None
            matchers.move_to_end(source)
            return matchers[source]

    def put(self, tokenizer: Tokenizer, source: str, matcher: LLMatcher) -> None:
        with self._lock:
            matchers = self._matchers.setdefault(tokenizer, OrderedDict())
            matchers[source] = matcher
            while len(matchers) > _KEPT:
                matchers.popitem(last=False)


_kept: Final = _Kept()


def _compiled(spec: GrammarSpec, source: str, table: TokenTable) -> LLMatcher:
    matcher = LLMatcher(table.inner, source, log_level=0, limits=_PARSER)
    schemas = _schemas(spec)
    if matcher.is_error():
        raise InputError(_failure(matcher.get_error(), _name(spec), schemas, table))
    for name, schema in schemas.items():
        check_finite(schema, name)
    warnings = matcher.get_grammar_warnings()
    if warnings:
        raise InputError(f"{_name(spec)}: {short('; '.join(warnings))}: what is only nearly supported is refused")
    _try_first(spec, matcher, table)
    return matcher


def _try_first(spec: GrammarSpec, matcher: LLMatcher, table: TokenTable) -> None:
    """Refuses a grammar of no text: it shows in the mask of the first token."""
    try:
        GrammarConstraint(matcher.deep_copy(), table, ()).mask(np.zeros(table.size, np.bool_))
    except InputError as error:
        raise InputError(f"{_name(spec)}: {error}") from error


def _schemas(spec: GrammarSpec) -> Mapping[str, Schema]:
    if isinstance(spec, JsonSchema):
        return {"json_schema": spec.schema}
    return spec.schemas if isinstance(spec, LarkGrammar) else {}


def _name(spec: GrammarSpec) -> str:
    return {"JsonSchema": "json_schema", "LarkGrammar": "grammar", "RegularExpression": "regex"}.get(
        type(spec).__name__, "choices"
    )


def _failure(message: str, title: str, schemas: Mapping[str, Schema], table: TokenTable) -> str:
    """Returns the error of a grammar, with the innermost schema that fails alone with the same message."""
    for name, schema in schemas.items():
        place = _place(schema, message, table)
        if place:
            return f"{name} at {place}: {short(message)}: change this part"
    return f"{title}: {short(message)}: change this part"


def _place(schema: Schema, message: str, table: TokenTable) -> str | None:
    named = (
        {key: schema[key] for key in ("$defs", "definitions") if key in schema} if isinstance(schema, Mapping) else {}
    )
    for index, (place, part) in enumerate(subschemas(schema)):
        if index >= _SEARCHED:
            return None
        if isinstance(part, Mapping) and _error_of({**named, **part}, table) == message:
            return place
    return None


def _error_of(schema: Mapping[str, Any], table: TokenTable) -> str:
    return LLMatcher(table.inner, schema_source(schema), log_level=0, limits=_PARSER).get_error()
