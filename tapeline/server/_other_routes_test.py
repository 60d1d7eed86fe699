"""Routes of vLLM and llama-server, and the paths by which clients call them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tapeline.cli import VERSION
from tapeline.server._embedding_model import EmbeddingModel
from tapeline.server._models import ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._scripted_server_testing import HELLO, Lengths, script_tokens
from tapeline.server._server_testing import TEMPLATE, VOCABULARY, RunningServer, running, text_model

__all__ = ["script_tokens"]  # a fixture


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, script: list[int]) -> Iterator[RunningServer]:
    text = text_model(tmp_path_factory.mktemp("model"), ScriptSlots(script, VOCABULARY))
    embedder = EmbeddingModel(name="lengths", created=2, context=16, embedder=Lengths())
    sources = [ModelSource("demo", lambda: text), ModelSource("lengths", lambda: embedder)]
    options = ServerOptions(port=0, api_keys=("secret",), model_aliases=(("gpt-4", "demo"), ("other", "demo")))
    with running(sources, options) as started:
        yield started


def ask(server: RunningServer, path: str, body: Any = None, method: str | None = None) -> Any:
    return server.request(path, body, method=method, headers={"authorization": "Bearer secret"})


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/chat/completions/", "/chat/completions", "/chat/completions/"]
)
def test_paths_with_a_slash_and_without_v1(server: RunningServer, path: str) -> None:
    body = {"model": "demo", "messages": HELLO, "max_tokens": 2}
    assert ask(server, path, body).json["object"] == "chat.completion"


def test_other_paths(server: RunningServer) -> None:
    models = ask(server, "/v1/models").json
    assert ask(server, "/models").json == ask(server, "/v1/models/").json == models
    assert ask(server, "/models/demo").json["id"] == "demo"
    assert ask(server, "/v1/health").json == {"status": "ready"}
    rank = {"model": "lengths", "query": "abc", "documents": ["abc", "a"]}
    for path in ("/v1/rerank", "/rerank", "/v2/rerank"):
        assert ask(server, path, rank).json["results"][0]["index"] == 0
    for path in ("/embeddings", "/completions", "/messages", "/responses", "/score", "/messages/count_tokens"):
        assert ask(server, path, {}).status == 400
    for path in ("/v1", "/v1/none", "/chat", "//v1/models", "/v1/v1/models"):
        assert ask(server, path).status == 404


def test_further_names_of_a_model(server: RunningServer) -> None:
    names = [model["id"] for model in ask(server, "/v1/models").json["data"]]
    assert names == ["demo", "lengths", "gpt-4", "other"]
    answered = ask(server, "/v1/chat/completions", {"model": "gpt-4", "messages": HELLO, "max_tokens": 2})
    assert answered.json["model"] == "demo"
    assert ask(server, "/v1/models/other").json["id"] == "demo"
    refused = ask(server, "/v1/chat/completions", {"model": "gpt-5", "messages": HELLO})
    assert refused.status == 404


def test_routes_that_tell_of_the_server(server: RunningServer) -> None:
    assert ask(server, "/version").json == {"version": VERSION}
    assert server.request("/ping").status == 200  # a probe, without a key
    assert ask(server, "/ping", {}).json == {"status": "ready"}
    assert server.request("/version").status == 401
    assert ask(server, "/load").json == {"server_load": 0}
    context = ask(server, "/v1/models/demo").json["max_model_len"]
    props = ask(server, "/props").json
    assert props["default_generation_settings"]["n_ctx"] == context
    assert props["chat_template"] == TEMPLATE
    slots = ask(server, "/slots").json
    assert len(slots) == props["total_slots"]
    assert [slot["id"] for slot in slots] == list(range(len(slots)))
    assert not any(slot["is_processing"] for slot in slots)
    info = ask(server, "/tokenizer_info").json
    assert (info["vocab_size"], info["model_max_length"]) == (VOCABULARY, context)
    assert ask(server, "/props?model=none").status == 404


def test_a_conversation_as_text(server: RunningServer) -> None:
    said = [*HELLO, {"role": "assistant", "content": "It"}]
    assert ask(server, "/apply-template", {"model": "demo", "messages": said}).json == {
        "prompt": "[user]Hello[assistant]It"
    }


def test_scores_are_those_of_ranks(server: RunningServer) -> None:
    rank = {"model": "lengths", "query": "abc", "documents": ["abc", "a", "abcdef"]}
    ranks = ask(server, "/v1/rerank", rank).json["results"]
    expected = [one["relevance_score"] for one in sorted(ranks, key=lambda one: one["index"])]
    for body in (
        {"text_1": "abc", "text_2": ["abc", "a", "abcdef"]},
        {"queries": "abc", "documents": ["abc", "a", "abcdef"]},
        {"text_1": ["abc"] * 3, "text_2": ["abc", "a", "abcdef"]},
    ):
        data = ask(server, "/score", body).json["data"]
        assert [one["score"] for one in data] == pytest.approx(expected)
        assert [one["index"] for one in data] == [0, 1, 2]
    assert ask(server, "/score", {"text_1": "a"}).error["param"] == "text_2"
    assert ask(server, "/score", {"text_1": ["a", "b"], "text_2": ["a"]}).error["param"] == "text_2"


def test_pooling_is_embedding(server: RunningServer) -> None:
    embedded = ask(server, "/v1/embeddings", {"input": ["a", "bcd"]}).json["data"]
    pooled = ask(server, "/pooling", {"input": ["a", "bcd"]}).json["data"]
    assert [one["data"] for one in pooled] == [one["embedding"] for one in embedded]
    shorter = ask(server, "/pooling", {"input": "abc", "dimensions": 2}).json["data"]
    assert len(shorter[0]["data"]) == 2
