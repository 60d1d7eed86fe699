"""Specifications to constraints: each is compiled and tried by a worker before an answer begins."""

import hashlib
import json
import os
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final
from weakref import WeakKeyDictionary

from lang_core import LARGE_JSON_BOUNDS, InputError, json_value
from tapeline.grammar import _worker
from tapeline.grammar._constraint import TOO_HARD, GrammarConstraint, GrammarFamily, failure, masked
from tapeline.grammar._messages import short, short_place
from tapeline.grammar._schema import subschemas
from tapeline.grammar._schema_finite import check_finite
from tapeline.grammar._sources import schema_source, source_of
from tapeline.grammar._specs import GrammarLimits, GrammarSpec, JsonSchema, LarkGrammar, Schema
from tapeline.grammar._table import TokenTable, table_of
from tapeline.grammar._workers import ENDING, LIMITS, Worker, WorkerEndedError
from tapeline.text import Tokenizer

_KEPT: Final = 64  # results of checks per tokenizer
_SEARCHED: Final = 300  # parts of a schema that are compiled alone to name the one at fault
_LARGEST: Final = 4 << 20  # characters of all these parts
_DEFAULTS: Final = GrammarLimits()
_SPACED: Final = re.compile(r"\(\?[a-zA-Z]*x")
_ESCAPED: Final = re.compile(
    r"(?<!\\)\\+(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|[xuU]\{([0-9a-fA-F]{1,8})\})"
)
_SET: Final = re.compile(r"\[(.)\]")
_ONE: Final = re.compile(r"\((?:\?(?:P?<\w+>|[a-zA-Z]*:))?|\)|\{1(?:,1)?\}")


def compile_constraint(
    spec: GrammarSpec,
    tokenizer: Tokenizer,
    ends: Iterable[int],
    limits: GrammarLimits = _DEFAULTS,
    *,
    salt: str | None = "",
) -> GrammarConstraint:
    """Returns a new constraint, for one answer; see ``compile_constraints``.

    Args:
        spec: constraint.
        tokenizer: tokenizer of the model.
        ends: ids that end an answer.
        limits: bounds of the specification.
        salt: callers with the same salt share cached grammars.
    """
    return compile_constraints(spec, tokenizer, ends, 1, limits, salt=salt)[0]


def compile_constraints(
    spec: GrammarSpec,
    tokenizer: Tokenizer,
    ends: Iterable[int],
    count: int,
    limits: GrammarLimits = _DEFAULTS,
    *,
    salt: str | None = "",
) -> list[GrammarConstraint]:
    """Returns new constraints, one for each of some answers; the grammar is compiled once for all of them.

    The tokenizer's table is built once, which takes long for large vocabularies: call this once when a server starts.
    A worker, which is a process with limits of its own, compiles the grammar and computes the first mask. The results
    of the last 64 grammars of a tokenizer are kept. Any thread may call this; a constraint is then used by one.

    Args:
        spec: constraint.
        tokenizer: tokenizer of the model.
        ends: ids that end an answer.
        count: number of answers, at least one.
        limits: bounds of the specification.
        salt: calls with the same salt share cached grammars. None does not share it. With
            another salt, nobody can learn by the time that a call takes whether the grammar was there.

    Raises:
        InputError: the specification is damaged, contradicts itself, is too large or too complex, or uses unsupported
            features; or the tokenizer is of a kind that cannot be constrained.
    """
    table, end_ids = table_of(tokenizer), frozenset(ends)
    prefix = os.urandom(_worker.SALT_BYTES) if salt is None else hashlib.sha256(salt.encode()).digest()
    key = _key(spec, limits, prefix)
    checked, worker = _kept.get(tokenizer, key), None
    if checked is None:
        forces = not _has_special(spec, table.specials)
        source = prefix + source_of(spec, limits, forces=forces).encode()
        error, worker = _error(spec, source, table)
        checked = _Checked(source, error)
        if key and salt is not None:
            _kept.put(tokenizer, key, checked)
    if checked.error:
        raise InputError(checked.error)
    if count == 1:
        if worker is not None:
            table.workers.release(worker)
        return [GrammarConstraint(checked.source, table, end_ids)]
    try:
        family = GrammarFamily(worker or _asked(table, _worker.START, checked.source)[0])
    except WorkerEndedError as problem:
        raise InputError(f"{_name(spec)}: {TOO_HARD}") from problem
    return [GrammarConstraint(checked.source, table, end_ids, family) for _ in range(count)]


def _has_special(spec: GrammarSpec, specials: Iterable[str]) -> bool:
    r"""Returns True if a specification has the text of a special token, maybe as ``<\|end\|>`` or ``[<]\x7cend``."""
    values = repr(_values(spec))
    if _SPACED.search(values):
        return True  # its spaces and line ends mean nothing
    text = _ESCAPED.sub(_letter, values).replace("\\", "")
    plain = _plain(text)
    bare = ((special.replace("\\", ""), _plain(special.replace("\\", ""))) for special in specials)
    return any(special in text or (spelled and spelled in plain) for special, spelled in bare)


def _letter(escape: re.Match[str]) -> str:
    code = int(next(filter(None, escape.groups())), 16)
    return chr(code) if code <= sys.maxunicode else ""


def _plain(text: str) -> str:
    """Returns a text without a regular expression's decorations of a letter: sets of one, groups, ``{1}``."""
    return _ONE.sub("", _SET.sub(r"\1", text))


@dataclass(frozen=True, slots=True)
class _Checked:
    """Specification that was checked.

    Attributes:
        source: salt, and grammar in llguidance's own format.
        error: why it is refused; an empty text if it is not.
    """

    source: bytes
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


def _key(spec: GrammarSpec, limits: GrammarLimits, prefix: bytes) -> bytes:
    """Returns the key of a specification, its limits and a salt; empty if that is not JSON, so it is not cached."""
    try:
        text = json.dumps([type(spec).__name__, _values(spec), _values(limits)], allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return b""
    return hashlib.sha256(prefix + text.encode()).digest()


def _values(record: GrammarSpec | GrammarLimits) -> list[Any]:
    return [getattr(record, field.name) for field in fields(record)]


def _error(spec: GrammarSpec, source: bytes, table: TokenTable) -> tuple[str, Worker | None]:
    """Returns why a grammar is refused, or an empty text and a worker that has compiled it."""
    name, schemas = _name(spec), _schemas(spec)
    try:
        worker, (kind, payload) = _asked(table, _worker.START, source)
    except WorkerEndedError:
        return f"{name}: {TOO_HARD}", None
    try:
        error = _refusal(name, schemas, kind, payload, table)
    except BaseException:
        table.workers.release(worker)
        raise
    if error:
        table.workers.release(worker)
        return error, None
    return "", worker


def _refusal(name: str, schemas: Mapping[str, Schema], kind: bytes, payload: bytes, table: TokenTable) -> str:
    """Returns why a grammar is refused, by the reply to it; an empty text if it is not."""
    if kind == _worker.REFUSED:
        error, warnings = json_value(payload, LARGE_JSON_BOUNDS)
        if error:
            return _failure(error, name, schemas, table)
        _check_finite(schemas)
        return f"{name}: {short('; '.join(warnings))}: partly supported features are refused"
    _check_finite(schemas)
    try:
        masked(payload, table)
    except InputError as problem:
        return f"{name}: {problem}"
    return ""


def _check_finite(schemas: Mapping[str, Schema]) -> None:
    for name, schema in schemas.items():
        check_finite(schema, name)


def _asked(table: TokenTable, kind: bytes, payload: bytes) -> tuple[Worker, tuple[bytes, bytes]]:
    """Returns a worker and its reply to a request; the worker is the caller's to release.

    Raises:
        WorkerEndedError: the request needs more than a worker may take.
        InputError: the worker is missing.
    """
    again = True
    while True:
        worker = _acquired(table)
        try:
            worker.send(kind, payload)
            reply = worker.receive(2 * LIMITS.reply_seconds)  # it raises before that
            if reply is None:
                raise WorkerEndedError("the worker has not replied in time")
        except WorkerEndedError:
            worker.close()
            if again and table.workers.lost(worker, ENDING):
                again = False
                continue
            raise
        except BaseException:
            worker.close()
            raise
        if kind == _worker.START:
            table.workers.count(*reply)
        if reply[0] != _worker.RENEW:
            return worker, reply
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
        worker, (_, payload) = _asked(table, _worker.FIND, request)
    except WorkerEndedError:
        return None  # to look for the part takes too long: the message stays without a place
    table.workers.release(worker)
    index = int(payload)
    return places[index] if index >= 0 else None
