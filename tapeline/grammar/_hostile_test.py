"""Grammars that would hang or exhaust memory: they end within the limits of a worker, and touch no other answer."""

import concurrent.futures
import contextlib
import fcntl
import gc
import json
import os
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
    _compile,
    _workers,
    compile_constraint,
    compile_constraints,
)
from tapeline.grammar._constraint import GrammarFamily
from tapeline.grammar._walks_testing import saved, text_ids, walk
from tapeline.text import Tokenizer, _samples_testing

LONG = os.environ.get("TAPELINE_LONG") == "1"
_END = 0
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.fixture(name="tokenizer")
def fresh_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tokenizer:
    """Tokenizer whose workers have small limits."""
    _small(monkeypatch)
    return saved(_samples_testing.byte_level(), tmp_path)


@pytest.fixture(scope="module", name="shared")
def shared_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenizer]:
    """The same for a whole module."""
    with pytest.MonkeyPatch.context() as patch:
        _small(patch)
        yield saved(_samples_testing.byte_level(), tmp_path_factory.mktemp("tokenizer"))


def _small(patch: pytest.MonkeyPatch, **limits: Any) -> None:
    small = {"compile_cpu_seconds": 0.3, "mask_cpu_seconds": 0.3, "memory_bytes": 96 << 20, **limits}
    patch.setattr(_workers, "LIMITS", _workers.WorkerLimits(**small))


def _mask(constraint: GrammarConstraint, tokenizer: Tokenizer) -> np.ndarray:
    out = np.zeros(tokenizer.vocabulary_size, np.bool_)
    constraint.mask(out)
    return out


def _trace(constraint: GrammarConstraint, tokenizer: Tokenizer, seed: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yields each mask of a random walk, and the token after it."""
    random = np.random.default_rng(seed)
    while not constraint.finished:
        allowed = _mask(constraint, tokenizer)
        token = int(random.choice(np.flatnonzero(allowed)))
        yield allowed.tobytes(), token
        constraint.accept(token)


_HANGS = [
    JsonSchema({"type": "integer", "multipleOf": 999_983}),
    JsonSchema({"type": "array", "items": {"type": "integer", "multipleOf": 499_979}, "minItems": 1}),
    LarkGrammar("start: b\nb: /y+//y+/", ends=True),  # the library's own look-ahead has no end
    RegularExpression(r"(?s:.*)" * 2000),
]


@pytest.mark.parametrize("spec", _HANGS)
def test_a_grammar_that_hangs_when_it_is_compiled_is_refused(spec: Any, tokenizer: Tokenizer) -> None:
    other = compile_constraint(JsonObject(), tokenizer, {_END})
    other.accept(text_ids(tokenizer, "{")[0])
    before = _mask(other, tokenizer)
    for _ in range(2):  # the second time it is known
        with pytest.raises(InputError, match=r"too complex: it needs more than|initial_lexer_fuel"):
            compile_constraint(spec, tokenizer, {_END})
    assert (_mask(other, tokenizer) == before).all()
    assert _mask(compile_constraint(Choices(["a"]), tokenizer, {_END}), tokenizer).any()


def test_a_mask_that_hangs_ends_its_answer_alone(tokenizer: Tokenizer) -> None:
    """The look-ahead begins after the first token: the grammar is compiled, and the answer has begun."""
    grammar = LarkGrammar('start: a b\na: "x"*\nb: /y+//y+/', ends=True)
    hanging, other = (compile_constraint(spec, tokenizer, {_END}) for spec in (grammar, JsonObject()))
    assert _mask(hanging, tokenizer).any()
    hanging.post(text_ids(tokenizer, "y")[0])
    assert not hanging.ready(0.0)
    text = '{"a":1}'
    for token in text_ids(tokenizer, text):
        assert _mask(other, tokenizer)[token]
        other.accept(token)
    assert other.finished
    with pytest.raises(InputError, match="too complex: it needs more than"):
        _mask(hanging, tokenizer)
    again = compile_constraint(grammar, tokenizer, {_END})  # the grammar itself is not refused
    assert _mask(again, tokenizer).any()


def test_a_worker_that_the_garbage_collector_closed_is_not_used_again(tokenizer: Tokenizer) -> None:
    """In a cycle, as of an error and its frames, a worker's socket is closed before its constraint gives it back."""
    constraint: Any = compile_constraint(JsonObject(), tokenizer, {_END})
    assert _mask(constraint, tokenizer).any()
    constraint.cycle = constraint
    del constraint
    gc.collect()
    assert _mask(compile_constraint(Choices(["a"]), tokenizer, {_END}), tokenizer).any()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (RegularExpression("a</s>b"), "a</s>b"),
        (RegularExpression(r"<\/s>"), "</s>"),
        (RegularExpression(r"<\x73>"), "<s>"),
        (RegularExpression(r"\x{3c}\u0073\U0000003e"), "<s>"),
        (RegularExpression(r"[<][\/]s\u{3E}"), "</s>"),
        (RegularExpression(r"(?:<)(s)>{1}"), "<s>"),
        (RegularExpression(r"(?x) < s >"), "<s>"),
        (JsonSchema({"type": "string", "pattern": r"^<\x73>$"}), '"<s>"'),
        (Choices(["<s>"]), "<s>"),
        (Choices(["<s></s>", "<s></s>"]), "<s></s>"),
        (JsonSchema({"const": "x</s>y"}), '"x</s>y"'),
        (JsonSchema({"enum": ["<s>"]}), '"<s>"'),
    ],
)
def test_the_text_of_a_special_token_is_text(spec: Any, text: str, tokenizer: Tokenizer) -> None:
    constraint = compile_constraint(spec, tokenizer, {_END})
    ids, ended = walk(constraint, tokenizer, frozenset({_END}), np.random.default_rng(0), 40)
    assert ended
    assert tokenizer.decode(ids) == text


def test_a_mask_that_allows_an_end_alone_as_text_is_an_error(tokenizer: Tokenizer) -> None:
    constraint = compile_constraint(LarkGrammar('start: "<s>"', ends=True), tokenizer, {_END})
    with pytest.raises(InputError, match="allows only the text of a token that ends the answer"):
        _mask(constraint, tokenizer)


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema is refused with a small limit, and compiled with the one of servers."""
    schema = {"type": "object", "properties": {f"property{index}": {"type": "integer"} for index in range(1500)}}
    _small(monkeypatch, compile_cpu_seconds=60.0, memory_bytes=4 << 20)
    tokenizer = saved(_samples_testing.byte_level(), tmp_path)
    with pytest.raises(InputError, match="MiB of memory"):
        compile_constraint(JsonSchema(schema), tokenizer, {_END})
    _small(monkeypatch, compile_cpu_seconds=60.0, memory_bytes=256 << 20)
    (tmp_path / "other").mkdir()
    larger = saved(_samples_testing.byte_level(), tmp_path / "other")
    assert _mask(compile_constraint(JsonSchema(schema), larger, {_END}), larger).any()


def test_the_time_of_a_whole_answer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mask is within its limit; all of them are not."""
    _small(monkeypatch, answer_cpu_seconds=0.1)
    tokenizer = saved(_samples_testing.byte_level(), tmp_path)
    constraint = compile_constraint(RegularExpression("(?s:.*)"), tokenizer, {_END})
    token = text_ids(tokenizer, "a")[0]

    def endless() -> None:
        while True:
            _mask(constraint, tokenizer)
            constraint.accept(token)

    with pytest.raises(InputError, match="for an answer"):
        endless()


def test_workers_are_used_again_and_bounded(tokenizer: Tokenizer) -> None:
    constraints = [compile_constraint(Choices([f"a{index}"]), tokenizer, {_END}) for index in range(12)]
    for constraint in constraints:
        assert _mask(constraint, tokenizer).any()
    pool = _compile.table_of(tokenizer).workers
    for constraint in constraints:
        constraint.close()
    assert len(pool._idle) == _workers._IDLE
    held = list(pool._idle)
    for worker in held:
        while not worker.is_idle():
            pass
    assert pool.acquire() in held


def test_the_process_of_the_table_is_started_again(tokenizer: Tokenizer) -> None:
    first = compile_constraint(JsonObject(), tokenizer, {_END})
    pool = _compile.table_of(tokenizer).workers
    while pool._idle:
        pool._idle.pop().close()
    pool._control.close()
    pool._control = _broken_socket()
    assert _mask(first, tokenizer).any()


def _broken_socket() -> Any:
    ours, theirs = _workers.socket.socketpair()
    theirs.close()
    return ours


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def _unread(connection: socket.socket) -> int:
    """Returns the number of bytes that the other side has yet to read, as the kernel counts them."""
    return struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]


@contextlib.contextmanager
def _ends_before_it_forks(pool: _workers.WorkerPool) -> Iterator[None]:
    """Lets the process that forks workers end while it has the connection of a worker that it has yet to fork."""
    while pool._idle:
        pool._idle.pop().close()
    control, process = socket.socketpair()
    pool._control = control

    def end() -> None:
        with process:
            _until(lambda: _unread(control) > 0)

    with concurrent.futures.ThreadPoolExecutor(1) as others:
        ended = others.submit(end)
        yield
        ended.result()


def test_a_grammar_whose_worker_was_never_forked_is_compiled_again(tokenizer: Tokenizer) -> None:
    with _ends_before_it_forks(_compile.table_of(tokenizer).workers):
        constraint = compile_constraint(Choices(["ab"]), tokenizer, {_END})
    assert _mask(constraint, tokenizer).any()


def test_an_answer_whose_worker_was_never_forked_is_begun_again(tokenizer: Tokenizer) -> None:
    first, second = (compile_constraint(Choices(["ab"]), tokenizer, {_END}) for _ in range(2))
    truth = list(_trace(first, tokenizer))
    with _ends_before_it_forks(_compile.table_of(tokenizer).workers):
        assert list(_trace(second, tokenizer)) == truth


def test_an_answer_whose_family_ends_is_begun_again(tokenizer: Tokenizer) -> None:
    first, second = compile_constraints(Choices(["ab"]), tokenizer, {_END}, 2)
    truth = list(_trace(first, tokenizer))
    connection, process = socket.socketpair()
    second._family = GrammarFamily(_workers.Worker(connection))
    with connection:
        with process:
            assert not second.ready(0.0)  # the family has the connection of a worker that it has yet to fork
        assert list(_trace(second, tokenizer)) == truth


def test_a_closed_constraint_fails(tokenizer: Tokenizer) -> None:
    constraint = compile_constraint(JsonObject(), tokenizer, {_END})
    _mask(constraint, tokenizer)
    constraint.accept(text_ids(tokenizer, "{")[0])
    constraint.close()
    with pytest.raises(InputError, match="was closed"):
        _mask(constraint, tokenizer)


# Drawn grammars of every kind that is known to be hard.

_atoms = st.sampled_from(["a", "[ab]", ".", r"\p{L}", r"\w", "(?s:.)", "ab|a", "[^a]", "a?", "é"])
_bounds = st.sampled_from(["*", "+", "?", "{1,1000}", "{1000}", "{0,37}", "{2}", "{50,}"])


_shapes = st.sampled_from(["({0}){1}", "({0}|{2}){1}", "(.*{2}){1}{0}", "({0}.{{20}}){1}", "({0}){1}({0}){1}"])


@st.composite
def _expressions(draw: st.DrawFn) -> str:
    parts = draw(st.lists(_atoms, min_size=1, max_size=4))
    text = "".join(f"({part})" for part in parts)
    for _ in range(draw(st.integers(0, 4))):
        shape = draw(
            st.sampled_from(["({0}){1}", "({0}|{2}){1}", "(.*{2}){1}{0}", "({0}.{{20}}){1}", "({0}){1}({0}){1}"])
        )
        text = shape.format(text, draw(_bounds), draw(_atoms))[:4000]
    return text


@st.composite
def _lark(draw: st.DrawFn) -> str:
    names = ["start", "a", "b", "c"][: draw(st.integers(1, 4))]
    symbols = st.one_of(
        st.sampled_from(names),
        st.sampled_from(['"x"', '"y"', '""', '"xy"', "/y+/", "/x*y*/", "/(xy|x)+/", "/.*x.{20}/", "T", "U"]),
    )
    endings = st.sampled_from(["", "", "*", "+", "?", "{1,300}", "{1000}"])
    lines: list[str] = []
    for name in names:
        choices = [
            " ".join(draw(symbols) + draw(endings) for _ in range(draw(st.integers(1, 4))))
            for _ in range(draw(st.integers(1, 3)))
        ]
        lines.append(f"{name}: {' | '.join(choices)}")
    first, second = draw(_expressions()), draw(_expressions())
    lines.append("T: /" + first.replace("/", "") + "/" + draw(st.sampled_from(["", " & /.*x.{9}/", " & ~/x*/"])))
    lines.append("U: /" + second.replace("/", "") + "/")
    return "\n".join(lines)


@st.composite
def _schemas(draw: st.DrawFn) -> Any:
    leaves = st.sampled_from(
        [
            {"type": "integer", "multipleOf": 7919},
            {"type": "number", "minimum": 1e-9, "maximum": 1e12},
            {"type": "string", "maxLength": 5000},
            {"type": "string", "minLength": 3000},
            {"type": "string", "format": "email"},
            {"enum": [f"{index * 7919 % 10007:05d}" for index in range(900)]},
            {"$ref": "#/$defs/n"},
            {"$ref": "#"},
            {"type": "string", "pattern": draw(_expressions())},
        ]
    )

    def holders(inner: Any) -> Any:
        return st.one_of(
            st.lists(inner, min_size=1, max_size=6).map(lambda parts: {"anyOf": parts}),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"allOf": parts}),
            inner.map(lambda part: {"type": "array", "items": part, "maxItems": 3000, "minItems": 0}),
            inner.map(lambda part: {"type": "object", "properties": {f"p{index}": part for index in range(60)}}),
            inner.map(lambda part: {"type": "object", "additionalProperties": part}),
        )

    top, named = draw(st.recursive(leaves, holders, max_leaves=5)), draw(st.recursive(leaves, holders, max_leaves=3))
    return {**top, "$defs": {"n": named}}


_specs = st.one_of(
    _expressions().map(RegularExpression),
    _lark().map(LarkGrammar),
    _schemas().map(JsonSchema),
    st.integers(100, 1500).map(lambda count: Choices([f"{index * 7919 % 10007}" for index in range(count)])),
)


@settings(
    max_examples=600 if LONG else 25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(spec=_specs, seed=st.integers(0, 2**32 - 1))
def test_drawn_grammars_end_and_touch_no_other_answer(spec: Any, seed: int, shared: Tokenizer) -> None:
    schema = JsonSchema({"type": "array", "items": {"enum": ["a", "bc", 1]}, "minItems": 2, "maxItems": 4})
    truth = list(_trace(compile_constraint(schema, shared, {_END}), shared, seed))
    other = _trace(compile_constraint(schema, shared, {_END}), shared, seed)
    seen = [next(other)]
    with contextlib.suppress(InputError):  # it is refused, or its answer ends
        constraint = compile_constraint(spec, shared, {_END})
        for turn, (_, token) in enumerate(_trace(constraint, shared, seed)):
            seen += [step for step in [next(other, None)] if step is not None]
            if token == _END or turn >= 8:
                break
    assert [*seen, *other] == truth


@pytest.mark.parametrize(
    "text",
    ["[a" * 50_000, '"\\' * 50_000, "a[b " * 40_000, '"' * 100_000, "/" * 100_000, '"a' * 50_000, "[max_" * 20_000],
)  # fmt: skip
def test_texts_of_brackets_and_quotes_are_read_once(text: str, tokenizer: Tokenizer) -> None:
    """Each took minutes, in which no other thread ran: the expressions read the rest again from each of them."""
    with pytest.raises(InputError, match="grammar"):
        compile_constraint(LarkGrammar(text), tokenizer, {_END})


def test_a_chain_of_references_is_looked_through_once(tokenizer: Tokenizer) -> None:
    """Each round found one more, and looked at all of them."""
    count = 2500
    chain: dict[str, Any] = {f"n{index}": {"$ref": f"#/$defs/n{index + 1}"} for index in range(count)}
    schema = {"$defs": {**chain, f"n{count}": {"type": "null"}}, "$ref": "#/$defs/n0"}
    assert len(json.dumps(schema)) < 128 << 10
    looked = 0
    inner = _compile.check_finite.__globals__["_is_finite"]

    def counted(*arguments: Any) -> bool:
        nonlocal looked
        looked += 1
        return inner(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_compile.check_finite.__globals__, "_is_finite", counted)
        _compile.check_finite(schema, "json_schema")
    assert looked < 4 * count
