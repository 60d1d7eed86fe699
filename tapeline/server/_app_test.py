"""The application over real sockets, with a model that says what a script says."""

import base64
import re
import threading
from typing import Any

import numpy as np
import pytest

from tapeline.server._embedding_model import EmbeddingModel
from tapeline.server._records import read_tolerant
from tapeline.server._scripted_server_testing import (
    HELLO,
    Lengths,
    chat,
    complete,
    script_tokens,
    scripted_server,
)
from tapeline.server._server_testing import Answered, RunningServer

__all__ = ["script_tokens", "scripted_server"]  # fixtures


LONG = [{"role": "user", "content": "b" * 90_000}]


def content(answered: Answered) -> str:
    assert answered.status == 200, answered.body
    return answered.json["choices"][0]["message"]["content"]


def streamed(answered: Answered) -> str:
    assert answered.events[-1] == "[DONE]"
    parts = [choice for event in answered.events[:-1] for choice in event["choices"]]
    return "".join(part["delta"].get("content") or "" for part in parts)


def test_a_stream_is_the_whole_answer_in_pieces(server: RunningServer) -> None:
    whole = chat(server, max_tokens=60)
    pieces = chat(server, max_tokens=60, stream=True, stream_options={"include_usage": True})
    assert streamed(pieces) == content(whole)
    assert "漢字 🙂" in content(whole)
    *events, last, _ = pieces.events
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * (len(events) - 1) + ["length"]
    assert all(event["usage"] is None for event in events)
    assert "\ufffd" not in streamed(pieces)
    assert last["choices"] == []
    assert {**last["usage"], "prompt_tokens_details": None} == {
        **whole.json["usage"],
        "prompt_tokens_details": None,
    }
    assert whole.json["usage"]["completion_tokens"] == 60


def test_a_stop_string_that_the_end_completes_is_why_it_ended(server: RunningServer) -> None:
    """The first tokens of a character are held back, and become U+FFFD where the answer is cut off."""
    halves = 0
    for limit in range(1, 90):
        text = content(chat(server, max_tokens=limit))
        (choice,) = chat(server, max_tokens=limit, stop="\ufffd").json["choices"]
        before, half, _ = text.partition("\ufffd")
        halves += bool(half)
        assert (choice["message"]["content"], choice["finish_reason"]) == (before, "stop" if half else "length")
    assert halves


@pytest.mark.parametrize("stop", ["END", ["zzz", "END and", "EN"], "🙂", "t, it was the wor"])
def test_a_stop_string_ends_the_answer_and_is_never_sent(server: RunningServer, stop: Any) -> None:
    everything = content(chat(server, max_tokens=100))
    stops = [stop] if isinstance(stop, str) else stop
    at = [everything.find(one) for one in stops if one in everything]
    whole, pieces = chat(server, max_tokens=100, stop=stop), chat(server, max_tokens=100, stop=stop, stream=True)
    expected = everything[: min(at)] if at else everything
    assert content(whole) == streamed(pieces) == expected
    assert whole.json["choices"][0]["finish_reason"] == ("stop" if at else "length")
    assert (whole.json["usage"]["completion_tokens"] < 100) == bool(at)


def test_log_probabilities_stand_beside_their_text(server: RunningServer) -> None:
    answered = chat(server, max_tokens=40, logprobs=True, top_logprobs=2, stop=["END"])
    tokens = answered.json["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(token["bytes"]) for token in tokens).decode() == content(answered)
    assert all(len(token["top_logprobs"]) == 2 for token in tokens)
    assert all(token["top_logprobs"][0]["logprob"] == token["logprob"] for token in tokens)
    pieces = chat(server, max_tokens=40, logprobs=True, top_logprobs=2, stop=["END"], stream=True)
    parts = [event["choices"][0]["logprobs"] for event in pieces.events[:-1]]
    assert [token for part in parts if part for token in part["content"]] == tokens


def test_completions_have_their_own_form(server: RunningServer, script: list[int]) -> None:
    answered = complete(server, prompt="It was", max_tokens=10, logprobs=3, echo=True, n=2)
    first, second = answered.json["choices"]
    assert first["text"] == second["text"]
    assert first["text"].startswith("It was")
    logprobs = first["logprobs"]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert len(logprobs["tokens"]) == answered.json["usage"]["prompt_tokens"] + 10
    assert "".join(logprobs["tokens"][1:]) == first["text"]  # the first is the token before every text
    for token, offset in zip(logprobs["tokens"][1:], logprobs["text_offset"][1:], strict=True):
        assert first["text"][offset:].startswith(token)
    events = complete(server, prompt="It was", max_tokens=10, logprobs=3, echo=True, stream=True).events[:-1]
    assert "".join(event["choices"][0]["text"] for event in events) == first["text"]
    assert [token for event in events for token in event["choices"][0]["logprobs"]["tokens"]] == logprobs["tokens"]
    many = complete(server, prompt=[[5, 6], script[:4]], max_tokens=2, n=2).json
    assert [choice["index"] for choice in many["choices"]] == [0, 1, 2, 3]
    assert many["usage"]["prompt_tokens"] == 6
    assert many["usage"]["completion_tokens"] == 8


def test_a_prompt_is_scored_without_new_tokens(server: RunningServer) -> None:
    answered = complete(server, prompt="It was", max_tokens=0, echo=True, logprobs=1)
    assert answered.json["choices"][0]["text"] == "It was"
    assert answered.json["usage"]["completion_tokens"] == 0
    scored = complete(server, prompt="It was", max_tokens=1, prompt_logprobs=2).json["choices"][0]["prompt_logprobs"]
    assert scored[0] is None
    assert all(2 <= len(one) <= 3 for one in scored[1:])
    assert chat(server, max_tokens=1, prompt_logprobs=0).json["prompt_logprobs"][0] is None


def test_tokens_of_texts_and_back(server: RunningServer) -> None:
    text = "naïve 漢字 🙂"
    cut = server.request("/tokenize", {"model": "demo", "prompt": text, "return_token_strs": True}).json
    assert cut["count"] == len(cut["tokens"]) == len(cut["token_strs"])
    assert server.request("/detokenize", {"model": "demo", "tokens": cut["tokens"]}).json == {"prompt": text}
    said = server.request("/tokenize", {"model": "demo", "messages": HELLO}).json
    assert (
        said["tokens"]
        == server.request("/tokenize", {"model": "demo", "prompt": "[user]Hello", "add_special_tokens": False}).json[
            "tokens"
        ]
    )


@pytest.mark.parametrize(
    ("similarity", "scores"),
    [
        ("cosine", [3 / (2 * 5) ** 0.5, 5 / (5 * 5) ** 0.5, 9 / (17 * 5) ** 0.5]),
        ("dot", [3, 5, 9]),
        ("euclidean", [-1, 0, -2]),
        ("manhattan", [-1, 0, -2]),
    ],
)
def test_an_embedder_ranks_by_its_own_similarity(similarity: str, scores: list[float]) -> None:
    lengths = Lengths()
    lengths.similarity = similarity
    model = EmbeddingModel(name="lengths", created=2, context=16, embedder=lengths)
    assert model.rank("aa", ["a", "bb", "cccc"]).scores == pytest.approx(scores)


def test_embeddings_and_ranks(server: RunningServer) -> None:
    answered = server.request("/v1/embeddings", {"model": "lengths", "input": ["a", "bcd"]}).json
    assert [one["embedding"] for one in answered["data"]] == [[1, 1, 0], [1, 3, 0]]
    assert answered["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    prompted = server.request("/v1/embeddings", {"input": ["a", "b" * 20], "prompt_name": "two"}).json
    assert [one["embedding"][1] for one in prompted["data"]] == [3, 8]
    assert prompted["usage"] == {"prompt_tokens": 11, "total_tokens": 11, "truncated_tokens": 14}
    packed = server.request("/v1/embeddings", {"input": "bcd", "encoding_format": "base64"}).json  # the only one
    assert np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4").tolist() == [1, 3, 0]
    ranked = server.request("/v1/rerank", {"query": "aa", "documents": ["a", {"text": "bb"}, "ccccc"], "top_n": 2}).json
    assert [one["index"] for one in ranked["results"]] == [1, 2]
    assert ranked["results"][0]["relevance_score"] == pytest.approx(1)
    assert ranked["results"][1]["document"] == {"text": "ccccc"}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/chat/completions", {"model": "dem", "messages": HELLO}, 404, "available: demo, slow, lengths; did you"),
        ("/v1/chat/completions", {"messages": HELLO}, 400, "model: name one; available: demo, slow"),
        ("/v1/chat/completions", {"model": "lengths", "messages": HELLO}, 400, "generates no text: name one that does"),
        ("/v1/embeddings", {"model": "demo", "input": "a"}, 400, "model 'demo' embeds no sentences"),
        ("/v1/embeddings", {"input": "b" * 20, "truncate": False}, 400, "a text has more tokens than the model reads"),
        (
            "/v1/embeddings",
            {"input": "a", "dimensions": 4},
            400,
            "dimensions: expected at most 3, which the model gives",
        ),
        ("/v1/completions", {"model": "demo", "prompt": [600]}, 400, "the model's vocabulary ends at 511"),
        ("/v1/completions", {"model": "demo", "prompt": "a", "max_tokens": 10**6}, 400, "context is"),
        ("/v1/completions", {"model": "demo", "prompt": [5] * 1000}, 400, "the prompt has 1000"),
        ("/v1/completions", {"model": "demo", "prompt": ["a", "b" * 90_000]}, 400, "the prompt has at least"),
        ("/v1/chat/completions", {"model": "demo", "messages": LONG}, 400, "the prompt has at least"),
        ("/v1/completions", {"model": "demo", "prompt": "a", "logit_bias": {"512": 1}}, 400, "token ids from 0 to 511"),
        ("/tokenize", {"model": "demo"}, 400, "give either `prompt` or `messages`"),
        ("/detokenize", {"model": "demo", "tokens": [512]}, 400, "`tokens` has token id 512"),
        ("/v1/audio/transcriptions", {}, 415, "content-type: expected multipart/form-data"),
        ("/v1/nothing", {}, 404, "no such route"),
        ("/v1/models", {}, 405, "does not take this method"),
    ],
)
def test_refusals(server: RunningServer, path: str, body: Any, status: int, message: str) -> None:
    answered = server.request(path, body)
    assert answered.status == status, answered.body
    assert message in answered.error["message"]
    assert answered.headers["x-request-id"]


def test_tokens_of_a_text_that_is_longer_than_the_context(server: RunningServer) -> None:
    for body in ({"prompt": "b" * 90_000}, {"messages": LONG}):
        counted = server.request("/tokenize", {"model": "demo", **body}).json
        assert counted["count"] > counted["max_model_len"]


def test_large_bodies_are_read_beside_the_event_loop(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def read(kind: Any, given: Any) -> Any:
        threads.append(threading.current_thread())
        return read_tolerant(kind, given)

    monkeypatch.setattr("tapeline.server._service.read_tolerant", read)
    for letters in (1, 90_000):
        assert server.request("/tokenize", {"model": "demo", "prompt": "b" * letters}).status == 200
    refused = server.request("/tokenize", {"model": "demo", "prompt": ["b" * 90_000]})
    assert (refused.status, refused.error["param"]) == (400, "prompt")
    loop, beside, _ = threads
    assert loop is not beside


def test_a_method_that_a_route_does_not_take(server: RunningServer) -> None:
    assert set(server.request("/v1/models", {}).headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_requests_have_names_and_lines_in_the_log(server: RunningServer) -> None:
    answered = server.request("/v1/models", headers={"x-request-id": "my-1"})
    assert answered.headers["x-request-id"] == "my-1"
    assert server.request("/v1/models", headers={"x-request-id": "two words"}).headers["x-request-id"] != "two words"
    chat(server, max_tokens=3, messages=[{"role": "user", "content": "a secret"}])
    lines = server.logged()
    assert [line["status"] for line in lines if line.get("request_id") == "my-1"] == [200]
    assert "secret" not in server.log.getvalue()


def test_metrics_count(server: RunningServer) -> None:
    def values() -> dict[str, float]:
        lines = server.request("/metrics").body.decode().splitlines()
        return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    before = values()
    chat(server, max_tokens=5)
    after = values()
    label = '{model_name="demo"}'
    assert after[f"tapeline:generation_tokens_total{label}"] - before[f"tapeline:generation_tokens_total{label}"] == 5
    counted = f"tapeline:time_to_first_token_seconds_count{label}"
    assert after[counted] - before[counted] == 1
    assert f"tapeline:kv_cache_usage_perc{label}" in after
    assert after['tapeline:http_responses_total{route="/v1/chat/completions",status="200"}'] >= 1


def test_models_health_and_pages(server: RunningServer) -> None:
    models = server.request("/v1/models").json["data"]
    assert [model["id"] for model in models] == ["demo", "slow", "lengths"]
    assert server.request("/v1/models/slow").json == models[1]
    assert server.request("/v1/models/none").status == 404
    assert (server.request("/health").status, server.request("/health").json) == (200, {"status": "ready"})
    page = server.request("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "http" not in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    names = re.findall(r'(?:src|href)="([^"]+)"', page.body.decode())
    assert len(names) == 5
    for name in names:
        asset = server.request(f"/{name}")
        assert (asset.status, asset.headers["x-content-type-options"]) == (200, "nosniff")
        assert asset.headers["content-type"].startswith("text/css" if name.endswith("css") else "text/javascript")
    for name in ("page/none.js", "page/../page.js", "page/vendor/packages.json", "page/%2e%2e/_app.py", "page/"):
        assert server.request(f"/{name}").status == 404
    document = server.request("/openapi.json").json
    assert document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["required"]
