"""Bodies drawn at random, for a server with pages, drafts and an embedder: an answer, or a typed error."""

import json
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.product._bundles import export
from tests.product._sentences import export_sentences
from tests.product._serving import ServerProcess, serving

_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_COMPLETIONS: Final = "/v1/completions"
_CHAT: Final = "/v1/chat/completions"
_SHAPE: Final[dict[str, Any]] = {
    "num_layers": 1,
    "sequence": 8,
    "slots": 2,
    "max_sequence": 128,
    "pages": 12,
    "page_tokens": 16,
    "verify_tokens": 4,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("bodies")
    bundle = export("demo", folder / "demo", **_SHAPE)
    (bundle / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
    )
    sentences = export_sentences(folder / "model", folder / "sentences")  # drafts do not go with it
    flags = (f"--bundle={bundle}", f"--bundle={sentences}", "--speculate=prompt_lookup", "--draft_rows=2")
    with serving(folder / "server", *flags) as started:
        yield started
        assert started.request("/health")[0] == 200
        assert started.figure("engine_failures_total") == 0
        assert started.end() == 0


_BODIES: Final = st.binary(max_size=80) | st.builds(
    lambda keys, value: json.dumps(dict.fromkeys(keys, value)).encode(),
    st.lists(st.sampled_from(["prompt", "messages", "model", "n", "stop", "tools", "stream", "logprobs"]), max_size=4),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ),
)
_PATHS: Final = (_COMPLETIONS, _CHAT, "/v1/embeddings", "/v1/rerank", "/tokenize", "/detokenize")


def test_malformed_bodies_are_refused(server: ServerProcess) -> None:
    @settings(max_examples=100_000 if _LONG else 300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(_PATHS), _BODIES)
    def run(path: str, body: bytes) -> None:
        status, answer = server.request(path, body)
        assert status in (200, 400, 404, 413, 429), answer
        if status != 200:
            assert set(answer["error"]) == {"message", "type", "param", "code"}

    run()
    with server.connect() as connection:
        connection.sendall(b"\0\1\2\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


_TEXT: Final = st.text(alphabet="It was the best of times,wxyz.\né", min_size=1, max_size=60)
_TOKENS: Final = st.lists(st.integers(0, 290), min_size=1, max_size=40)
_SCHEMAS: Final = (
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
    {"enum": ["it was", "the"]},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
)
_FORMATS: Final = (
    {"type": "text"},
    {"type": "json_object"},
    *({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}} for schema in _SCHEMAS),
)
# Values of which nearly all are allowed, so that most requests reach the engine.
_FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "max_tokens": st.integers(0, 40),
    "temperature": st.sampled_from([0, 0.5, 1, 2, 2.1]),
    "top_p": st.sampled_from([0.1, 0.9, 1]),
    "top_k": st.integers(-1, 60),
    "min_p": st.sampled_from([0, 0.05, 1]),
    "n": st.integers(1, 4),
    "stop": _TEXT | st.lists(_TEXT, max_size=4) | st.sampled_from(["t", "es,", " "]),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "repetition_penalty": st.sampled_from([0.5, 1.3, 2]),
    "logit_bias": st.dictionaries(st.integers(0, 300).map(str), st.integers(-100, 100), max_size=4),
    "ignore_eos": st.booleans(),
    "stop_token_ids": st.lists(st.integers(0, 300), max_size=3),
    "prompt_logprobs": st.integers(0, 5),
    "response_format": st.sampled_from(_FORMATS),
}
_TOOLS: Final = [{"type": "function", "function": {"name": "f", "parameters": _SCHEMAS[0]}}]
_OF_PATH: Final[dict[str, dict[str, st.SearchStrategy[Any]]]] = {
    _COMPLETIONS: {**_FIELDS, "logprobs": st.integers(0, 6), "echo": st.booleans()},
    _CHAT: {
        **_FIELDS,
        "logprobs": st.just(True),
        "top_logprobs": st.integers(0, 5),
        "tools": st.just(_TOOLS),
        "tool_choice": st.sampled_from(["none", "auto", "required", {"type": "function", "function": {"name": "f"}}]),
    },
}
_PROMPTS: Final[dict[str, st.SearchStrategy[Any]]] = {
    _COMPLETIONS: st.fixed_dictionaries({"prompt": _TEXT | _TOKENS | st.lists(_TEXT, min_size=1, max_size=3)}),
    _CHAT: st.fixed_dictionaries(
        {
            "messages": st.lists(
                st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": _TEXT}),
                min_size=1,
                max_size=3,
            )
        }
    ),
}


@st.composite
def _nearly_right(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    path = draw(st.sampled_from((_COMPLETIONS, _CHAT)))
    names = draw(st.sets(st.sampled_from(sorted(_OF_PATH[path])), max_size=7))
    fields = {name: draw(_OF_PATH[path][name]) for name in sorted(names)}
    return path, {**draw(_PROMPTS[path]), **fields, "seed": draw(st.integers(0, 2**63))}


def _joined(events: str) -> dict[int, list[Any]]:
    """Returns text, end and number of calls of each answer of a stream."""
    answers: dict[int, list[Any]] = {}
    *parts, last = (part.removeprefix("data: ") for part in events.strip().split("\n\n"))
    assert last == "[DONE]", last
    for choice in (choice for part in parts for choice in json.loads(part)["choices"]):
        answer = answers.setdefault(choice["index"], ["", None, 0])
        delta = choice.get("delta", {})
        answer[0] += choice.get("text") or delta.get("content") or ""
        answer[1] = choice["finish_reason"] or answer[1]
        answer[2] += sum("id" in call for call in delta.get("tool_calls") or ())
    return answers


def _answer(choice: dict[str, Any]) -> list[Any]:
    message = choice.get("message", {})
    text = choice.get("text") or message.get("content") or ""
    return [text, choice["finish_reason"], len(message.get("tool_calls") or ())]


def test_nearly_right_bodies_are_answered_alike_in_one_piece_and_in_many(server: ServerProcess) -> None:
    @settings(max_examples=3_000 if _LONG else 60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(_nearly_right())
    def run(asked: tuple[str, dict[str, Any]]) -> None:
        path, body = asked
        status, answer = server.request(path, body)
        streamed, events = server.request(path, {**body, "stream": True})
        event(f"status {status}")
        assert (status, streamed) in ((200, 200), (400, 400)), (answer, events)
        if status == 400:
            assert answer["error"]["param"], answer
        else:
            assert _joined(events) == {choice["index"]: _answer(choice) for choice in answer["choices"]}

    run()
