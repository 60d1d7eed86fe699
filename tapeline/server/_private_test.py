"""Privacy of requests: answers show nothing of the server, its log nothing of requests. All routes are drawn."""

import copy
import json
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeline.grammar import GrammarConstraint
from tapeline.grammar._table import table_of
from tapeline.server import _compiling
from tapeline.server._chat_form import ChatForm
from tapeline.server._embedding_model import EmbeddingModel
from tapeline.server._in_process_testing import InProcessServer
from tapeline.server._model import TextModel
from tapeline.server._models import ModelSource
from tapeline.server._openapi import POSTS
from tapeline.server._options import ServerOptions
from tapeline.server._records import fields_of
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._scripted_server_testing import Lengths
from tapeline.server._server_testing import VOCABULARY, RunningServer, running, text_model

_SECRET = "sEcReT"
_TEXTS = st.sampled_from(
    [_SECRET, f"/{_SECRET}/a b/c", _SECRET * 2000, f"\x01\n{_SECRET}\x00" * 200, f"🙂{_SECRET}" * 500, "", "a"]
)
_SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    _SCALARS | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=5,
)
_HELLO = [{"role": "user", "content": _SECRET}]
_SCHEMA = {"type": "object", "properties": {_SECRET: {"type": "string", "minLength": 1}}, "required": [_SECRET]}
_TOOL = {"type": "function", "function": {"name": "look", "description": _SECRET, "parameters": _SCHEMA}}
_FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA}}
_CHAT = {"model": "demo", "messages": _HELLO, "max_tokens": 2}
_TEXT = {"model": "demo", "prompt": _SECRET, "max_tokens": 2}
_BODIES: Sequence[tuple[str, dict[str, Any]]] = (
    ("/v1/chat/completions", {**_CHAT, "n": 2, "stop": [_SECRET], "chat_template_kwargs": {"a": _SECRET}}),
    ("/v1/chat/completions", {**_CHAT, "tools": [_TOOL], "tool_choice": "required", "stream": True}),
    ("/v1/chat/completions", {**_CHAT, "response_format": _FORMAT}),
    ("/v1/completions", {**_TEXT, "logit_bias": {"5": 1}, "echo": True, "logprobs": 2}),
    ("/v1/completions", {**_TEXT, "structured_outputs": {"choice": [_SECRET, "b"]}, "stream": True}),
    ("/v1/completions", {**_TEXT, "prompt": [1, 2], "structured_outputs": {"grammar": f'start: "{_SECRET}"'}}),
    ("/v1/embeddings", {"model": "lengths", "input": [_SECRET, "b"], "truncate": True}),
    ("/v1/rerank", {"model": "lengths", "query": _SECRET, "documents": [_SECRET, {"text": "b"}]}),
    ("/tokenize", {"model": "demo", "messages": _HELLO}),
    ("/detokenize", {"model": "demo", "tokens": [5, 6]}),
)


@pytest.fixture(scope="module", name="app")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessServer]:
    """The application; the path of its model has spaces."""
    server = InProcessServer(tmp_path_factory.mktemp("place of models"))
    server.take_log()  # of the load
    yield server
    server.close()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields every list or object inside a value, with each key and one more."""
    if isinstance(value, dict):
        yield from ((value, key) for key in value)
    elif isinstance(value, list):
        yield from ((value, index) for index in range(len(value)))
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _places(inner)


@st.composite
def _requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """A body that a route takes, with up to three values that are others, and up to two more fields."""
    path, body = draw(st.sampled_from(_BODIES))
    body = copy.deepcopy(body)
    for _ in range(draw(st.integers(0, 3))):
        holder, key = draw(st.sampled_from(list(_places(body))))
        holder[key] = draw(_JSON)
        if not list(_places(body)):
            break
    kind = POSTS[path][0]
    names = st.sampled_from([*fields_of(kind), *kind.REFUSED]) | _TEXTS
    body |= draw(st.dictionaries(names, _JSON, max_size=2))
    return path, json.dumps(body).encode()


def _errors(body: bytes) -> list[bytes]:
    """Returns the errors of an answer, or of a stream."""
    return [part for part in body.removesuffix(b"\n\n").split(b"\n\n") if b'{"error":' in part]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_requests())
def test_no_request_fails_the_server_or_shows_in_its_log(app: InProcessServer, request: tuple[str, bytes]) -> None:
    status, body = app.ask(*request)  # raises the error behind a 500
    assert status in (200, 400, 404, 413, 429)
    for error in _errors(body) if status == 200 else [body]:
        assert len(error) < 4096
        assert b"place of models" not in error
        assert b"place-of-models" not in error
    log = app.take_log()
    assert log.count("\n") == 1
    assert _SECRET not in log


def test_a_field_of_megabytes_gets_a_short_answer(app: InProcessServer) -> None:
    for name in ("a" * 90_000, "\x00" * 15_000, "messages" * 10_000):
        for body in ({name: 1}, {"messages": [{name: 1}]}, {"messages": _HELLO, "chat_template_kwargs": {name: 1}}):
            status, answer = app.ask("/v1/chat/completions", json.dumps(body).encode())
            assert (status, len(answer) < 4096) == (200 if "chat_template_kwargs" in body else 400, True)


@pytest.mark.parametrize("name", ["self", "super", "loop", "range", "raise_exception", "messages", "tools", "none"])
def test_reserved_variables_of_templates_are_refused_by_name(app: InProcessServer, name: str) -> None:
    status, answer = app.ask("/v1/chat/completions", json.dumps({**_CHAT, "chat_template_kwargs": {name: 1}}).encode())
    assert status == 400
    assert json.loads(answer)["error"]["param"] == f"chat_template_kwargs.{name}"


@pytest.mark.parametrize("name", ["context", "environment", "name", "template", "limits", "__class__", "", "a b"])
def test_other_variables_of_templates_are_taken(app: InProcessServer, name: str) -> None:
    body = json.dumps({**_CHAT, "chat_template_kwargs": {name: 1}}).encode()
    assert app.ask("/v1/chat/completions", body)[0] == 200


class _Failing(Lengths):
    """Embedder whose error shows the texts."""

    def embed(self, texts: Any, *, prompt_name: str | None = None, truncate: bool = True, check: Any = None) -> Any:
        """Raises an error that shows the texts."""
        raise ValueError(f"cannot embed {texts}")


def test_an_unexpected_error_is_logged_without_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chunk(*_: object) -> None:
        raise ValueError(f"cannot write {_SECRET}")

    monkeypatch.setattr(ChatForm, "chunk", chunk)
    failing = EmbeddingModel(name="failing", created=1, context=16, embedder=_Failing())
    text = text_model(tmp_path, ScriptSlots([5] * 64, VOCABULARY))
    with running([ModelSource(model.name, lambda model=model: model) for model in (failing, text)]) as server:
        assert server.request("/v1/embeddings", {"model": "failing", "input": _SECRET}).status == 500
        with pytest.raises(HTTPException):
            server.request("/v1/chat/completions", {**_CHAT, "stream": True})
    log = server.log.getvalue()
    assert _SECRET not in log
    failures = [line for line in server.logged() if line["event"] == "failure"]
    assert [line["error"] for line in failures] == ["ValueError", "ValueError"]
    assert "in embed" in failures[0]["traceback"]
    assert "in chunk" in failures[1]["traceback"]


def test_answers_beyond_the_queue_are_refused_before_a_grammar_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles: list[Any] = []

    def compile_constraints(*arguments: Any, **options: Any) -> list[GrammarConstraint]:
        compiles.append(arguments)
        return original(*arguments, **options)

    original = _compiling.compile_constraints
    monkeypatch.setattr(_compiling, "compile_constraints", compile_constraints)
    text = text_model(tmp_path, ScriptSlots([5] * 64, VOCABULARY), max_waiting=8)
    fields = {"model": "demo", "max_tokens": 1, "structured_outputs": {"choice": ["a", "b"]}}
    with running([ModelSource("demo", lambda: text)]) as server:
        refused = server.request("/v1/completions", {**fields, "prompt": ["a"] * 64, "n": 16})
        assert refused.status == 400
        assert "1024 answers at once are more than the 12" in refused.error["message"]
        messages = {**fields, "messages": _HELLO, "n": 16}
        assert server.request("/v1/chat/completions", messages).status == 400
        too_long = server.request("/v1/completions", {**fields, "prompt": [5] * 100})
        assert too_long.error["code"] == "context_length_exceeded"
        assert server.request("/v1/completions", {**fields, "prompt": "a", "logit_bias": {"600": 1}}).status == 400
        assert compiles == []
        assert server.request("/v1/completions", {**fields, "prompt": ["a", "b"], "n": 4}).status == 200
        assert len(compiles) == 1


_KEYS = ("first", "second")


def _compiled(server: RunningServer, text: TextModel, key: str, fields: dict[str, Any]) -> int:
    """Returns the number of grammars that workers compile for a request."""
    workers = table_of(text.tokenizer).workers
    before = workers.compiled
    body = {"model": "demo", "prompt": "a", "temperature": 0, "max_tokens": 3, **fields}
    answered = server.request("/v1/completions", body, headers={"authorization": f"Bearer {key}"})
    assert answered.status == 200, answered.body
    return workers.compiled - before


@pytest.mark.parametrize("fields", [{"n": 16}, {"prompt": ["a"] * 64}, {"prompt": ["a", "b"], "n": 4}, {}])
def test_a_grammar_is_compiled_once_for_all_answers_of_a_request(tmp_path: Path, fields: dict[str, Any]) -> None:
    text = text_model(tmp_path, ScriptSlots([5] * 64, VOCABULARY), max_waiting=80)
    with running([ModelSource("demo", lambda: text)]) as server:
        for number in range(3):
            schema = {"enum": [f"a{number}", "b"]}
            assert _compiled(server, text, "", {**fields, "structured_outputs": {"json": schema}}) == 1


@pytest.mark.parametrize(
    ("sharing", "compiles"), [("per_key", [1, 0, 1, 0, 0]), ("shared", [1, 0, 0, 0, 0]), ("off", [1, 1, 1, 1, 1])]
)
def test_compiled_grammars_are_kept_for_those_who_share_prefixes(
    tmp_path: Path, sharing: Any, compiles: list[int]
) -> None:
    """The time to the first token would tell one key that another has sent the same schema."""
    text = text_model(tmp_path, ScriptSlots([5] * 64, VOCABULARY))
    options = ServerOptions(port=0, api_keys=_KEYS, prefix_cache=sharing)
    fields = {"structured_outputs": {"json": {"enum": ["a", "b"]}}}
    with running([ModelSource("demo", lambda: text)], options) as server:
        asked = []
        for key in ("first", "first", "second", "second", "first"):
            asked.append(_compiled(server, text, key, fields))
            while not any(worker.is_idle() for worker in list(table_of(text.tokenizer).workers._idle)):
                time.sleep(0.01)  # an answer may end before its last mask, and a worker that computes takes no other
    assert asked == compiles
