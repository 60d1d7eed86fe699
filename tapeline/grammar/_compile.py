"""Specifications to constraints: each is compiled and tried by a worker before an answer begins."""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final
from weakref import WeakKeyDictionary

from lang_core import LARGE_JSON_BOUNDS, InputError, json_value
from tapeline.grammar import _worker
from tapeline.grammar._constraint import TOO_HARD, GrammarConstraint, failure, masked
from tapeline.grammar._messages import short, short_place
from tapeline.grammar._schema import subschemas
from tapeline.grammar._schema_finite import check_finite
from tapeline.grammar._sources import schema_source, source_of
from tapeline.grammar._specs import GrammarLimits, GrammarSpec, JsonSchema, LarkGrammar, Schema
from tapeline.grammar._table import TokenTable, table_of
from tapeline.grammar._workers import LIMITS, Worker, WorkerEndedError
from tapeline.text import Tokenizer

_KEPT: Final = 64  # results of checks per tokenizer
_SEARCHED: Final = 300  # parts of a schema that are compiled alone to name the one at fault
_LARGEST: Final = 4 << 20  # characters of all these parts
_DEFAULTS: Final = GrammarLimits()


def compile_constraint(
    spec: GrammarSpec, tokenizer: Tokenizer, ends: Iterable[int], limits: GrammarLimits = _DEFAULTS
) -> GrammarConstraint:
    """Returns a new constraint, for one answer.

    The tokenizer's table is built once, which takes long for large vocabularies: call this once when a server starts.
    A worker, which is a process with limits of its own, compiles the grammar and computes the first mask. The results
    of the last 64 grammars of a tokenizer are kept. Any thread may call this; the constraint is then used by one.

    Args:
        spec: constraint.
        tokenizer: tokenizer of the model.
        ends: ids that end an answer.
        limits: bounds of the specification.

    Raises:
        InputError: the specification is damaged, contradicts itself, is too large or too complex, or uses what is not
            supported; or the tokenizer is of a kind that cannot be constrained.
    """
    table = table_of(tokenizer)
    key = _key(spec, limits)
    checked = _kept.get(tokenizer, key)
    if checked is None:
        source = source_of(spec, limits)
        checked = _Checked(source, _error(spec, source, table))
        if key:
            _kept.put(tokenizer, key, checked)
    if checked.error:
        raise InputError(checked.error)
    return GrammarConstraint(checked.source, table, ends)


@dataclass(frozen=True, slots=True)
class _Checked:
    """Specification that was checked.

    Attributes:
        source: grammar in llguidance's own format.
        error: why it is refused; an empty text if it is not.
    """

    source: str
    error: str


class _Kept:
    """Specifications that were checked, by tokenizer; of each tokenizer the last ones."""

    def __init__(self) -> None:
        self._checked: Final[WeakKeyDictionary[Tokenizer, OrderedDict[bytes, _Checked]]] = WeakKeyDictionary()
        self._lock: Final = threading.Lock()

    def get(self, tokenizer: Tokenizer, key: bytes) -> _Checked | None:
        with self._lock:
            known = self._checked.get(tokenizer)
            if known is None or key not in known:
                return None
            known.move_to_end(key)
            return known[key]

    def put(self, tokenizer: Tokenizer, key: bytes, checked: _Checked) -> None:
        with self._lock:
            known = self._checked.setdefault(tokenizer, OrderedDict())
            known[key] = checked
            while len(known) > _KEPT:
                known.popitem(last=False)


_kept: Final = _Kept()


def _key(spec: GrammarSpec, limits: GrammarLimits) -> bytes:
    """Returns what names a specification and its limits; empty if that is not JSON, so that it is not kept."""
    try:
        text = json.dumps([type(spec).__name__, _values(spec), _values(limits)], allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return b""
    return hashlib.sha256(text.encode()).digest()


def _values(record: GrammarSpec | GrammarLimits) -> list[Any]:
    return [getattr(record, field.name) for field in fields(record)]


def _error(spec: GrammarSpec, source: str, table: TokenTable) -> str:
    """Returns why a grammar is refused, or an empty text."""
    name, schemas = _name(spec), _schemas(spec)
    try:
        kind, payload = _reply(table, _worker.START, source.encode())
    except WorkerEndedError:
        return f"{name}: {TOO_HARD}"
    if kind == _worker.REFUSED:
        error, warnings = json_value(payload, LARGE_JSON_BOUNDS)
        if error:
            return _failure(error, name, schemas, table)
        _check_finite(schemas)
        return f"{name}: {short('; '.join(warnings))}: what is only nearly supported is refused"
    _check_finite(schemas)
    try:
        masked(payload, table)
    except InputError as problem:
        return f"{name}: {problem}"
    return ""


def _check_finite(schemas: Mapping[str, Schema]) -> None:
    for name, schema in schemas.items():
        check_finite(schema, name)


def _reply(table: TokenTable, kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """Returns a worker's reply to a request.

    Raises:
        WorkerEndedError: the request needs more than a worker may take.
        InputError: there is no worker.
    """
    while True:
        worker = _acquired(table)
        try:
            worker.send(kind, payload)
            reply = worker.receive(2 * LIMITS.reply_seconds)  # it raises before that
            if reply is None:
                raise WorkerEndedError("the worker has not replied in time")
        except BaseException:
            worker.close()
            raise
        if reply[0] != _worker.RENEW:
            table.workers.release(worker)
            return reply
        worker.close()


def _acquired(table: TokenTable) -> Worker:
    try:
        return table.workers.acquire()
    except OSError as error:
        raise failure(f"no process can be started: {error.strerror}") from error


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
            return f"{name} at {short_place(place)}: {short(message)}: change this part"
    return f"{title}: {short(message)}: change this part"


def _place(schema: Schema, message: str, table: TokenTable) -> str | None:
    named = (
        {key: schema[key] for key in ("$defs", "definitions") if key in schema} if isinstance(schema, Mapping) else {}
    )
    places: list[str] = []
    sources: list[str] = []
    size = 0
    for place, part in subschemas(schema):
        if len(places) >= _SEARCHED or size > _LARGEST:
            break
        if isinstance(part, Mapping):
            places.append(place)
            sources.append(schema_source({**named, **part}))
            size += len(sources[-1])
    request = json.dumps({"sources": sources, "message": message}).encode()
    try:
        _, payload = _reply(table, _worker.FIND, request)
    except WorkerEndedError:
        return None  # to look for the part takes too long: the message stays without a place
    index = int(payload)
    return places[index] if index >= 0 else None
