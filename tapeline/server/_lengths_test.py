"""Long texts: what is refused before it is encoded, and that large requests leave threads for others."""

import asyncio
import concurrent.futures
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from generation.engine import BusyError
from tapeline.server import ModelSource, RankingModel, ServerOptions
from tapeline.server._errors import RequestError
from tapeline.server._lengths import BEYOND, BEYOND_ALL, PER_TOKEN, check_lengths, most_letters
from tapeline.server._readers import Items, Whole
from tapeline.server._records import read_tolerant
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._server_testing import VOCABULARY, RunningServer, running, text_model
from tapeline.server._turns import SerialExecutor


@pytest.fixture(scope="module", name="server")
def text_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    model = text_model(tmp_path_factory.mktemp("model"), ScriptSlots([0] * 8, VOCABULARY))
    with running([ModelSource(model.name, lambda: model)], ServerOptions(port=0)) as started:
        yield started


def _refused(server: RunningServer, path: str, body: dict[str, Any]) -> tuple[int, str, str, str]:
    answered = server.request(path, body)
    return answered.status, answered.error["code"], answered.error["param"], answered.error["message"]


def test_texts_that_are_too_long_are_refused_before_they_are_encoded(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = server.request("/tokenize", {"model": "demo", "prompt": "a"}).json["max_model_len"]
    most = most_letters(context)
    assert server.request("/tokenize", {"model": "demo", "prompt": "a" * most}).json["count"] > context

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("tapeline.text.Tokenizer.encode", never)
    monkeypatch.setattr("tapeline.text.Tokenizer.decode", never)
    long, bound = "a" * (most + 1), f"expected at most {most} letters; found {most + 1}"
    path, code = "/tokenize", "text_too_long"
    assert _refused(server, path, {"model": "demo", "prompt": long}) == (
        400,
        code,
        "prompt",
        f"prompt: {bound}: send it in parts",
    )
    talk = {"model": "demo", "messages": [{"role": "user", "content": long}]}
    assert _refused(server, path, talk)[:3] == (400, code, "messages")
    ids = _refused(server, "/detokenize", {"model": "demo", "tokens": [1] * (most + 1)})
    assert ids == (400, code, "tokens", f"tokens: expected at most {most} tokens; found {most + 1}: send it in parts")
    prompt = _refused(server, "/v1/completions", {"model": "demo", "prompt": [1] * (context + 1), "echo": True})
    assert prompt[1:] == (
        "context_length_exceeded",
        "prompt",
        f"the model's context is {context} tokens: the prompt has {context + 1}; shorten it",
    )


def test_a_prompt_of_a_tokenizer_of_which_nothing_is_known(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.text.Tokenizer.least_tokens", lambda *_: 0)
    context = server.request("/tokenize", {"model": "demo", "prompt": "a"}).json["max_model_len"]
    count = most_letters(4 * context) + 1
    refused = _refused(server, "/v1/completions", {"model": "demo", "prompt": "a" * count})
    assert refused[1:3] == ("context_length_exceeded", "prompt")
    assert f"the prompt has {count} letters; shorten it" in refused[3]


def test_letters_beyond_the_context_count_together() -> None:
    free, context = PER_TOKEN * 100, 100
    check_lengths([free] * 2048, context, "input")
    check_lengths([free + BEYOND] * 4, context, "input")
    assert BEYOND_ALL == 4 * BEYOND
    with pytest.raises(
        RequestError, match=f"input: expected at most {free + BEYOND} letters; found {free + BEYOND + 1}"
    ):
        check_lengths([1, free + BEYOND + 1], context, "input")
    with pytest.raises(
        RequestError, match=f"at most {BEYOND_ALL} letters beyond {free} of each; found {BEYOND_ALL + 4}"
    ):
        check_lengths([free + BEYOND // 2] * 8 + [free + 4], context, "input")


class _Never:
    """Embedder and reranker that nothing must reach."""

    def rerank(self, query: str, documents: Sequence[str], **_: Any) -> Any:
        raise AssertionError

    def pair_tokens(self, query: str, document: str) -> int:
        return len(query) + len(document)

    def close(self) -> None:
        """Frees nothing."""


def test_a_query_is_counted_with_each_document() -> None:
    model = RankingModel(name="never", created=1, context=20, ranker=_Never())
    query = "q" * (1000 + PER_TOKEN * 20)
    with running([ModelSource(model.name, lambda: model)], ServerOptions(port=0)) as server:
        refused = _refused(server, "/v1/rerank", {"query": query, "documents": ["d"] * 2048})
        assert refused[:3] == (400, "text_too_long", "documents")
        assert f"found {1001 * 2048}" in refused[3]
        refused = _refused(server, "/v1/rerank", {"query": "q" * (most_letters(20) + 1), "documents": ["d"]})
        assert refused[:3] == (400, "text_too_long", "query")


def test_large_requests_leave_threads_to_others(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, go_on = threading.Lock(), threading.Event()
    inside, most, reached = 0, 0, threading.Event()

    def read(kind: Any, given: Any) -> Any:
        nonlocal inside, most
        if len(given["prompt"]) < 10:
            return read_tolerant(kind, given)
        with lock:
            inside += 1
            most = max(most, inside)
            if inside == 2:
                reached.set()
        assert go_on.wait(60)
        with lock:
            inside -= 1
        return read_tolerant(kind, given)

    monkeypatch.setattr("tapeline.server._service.read_tolerant", read)
    large = {"model": "demo", "prompt": "b" * 90_000}
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(server.request, "/tokenize", large) for _ in range(12)]
        try:
            assert reached.wait(60)
            assert server.request("/tokenize", {"model": "demo", "prompt": "b"}).status == 200
        finally:
            go_on.set()
        assert {one.result().status for one in waiting} == {200}
    assert most == 2


def test_calls_of_a_model_wait_without_threads() -> None:
    async def run() -> None:
        turns, order, inside = SerialExecutor(), list[int](), asyncio.Event()

        async def call(number: int, end: asyncio.Event) -> None:
            async with turns.turn():
                inside.set()
                await end.wait()
                order.append(number)

        first, others = asyncio.Event(), asyncio.Event()
        others.set()
        calls = [asyncio.create_task(call(0, first))]
        await inside.wait()
        calls += [asyncio.create_task(call(number, others)) for number in range(1, 65)]
        await asyncio.sleep(0)
        assert order == []
        with pytest.raises(BusyError):
            await call(65, others)
        first.set()
        await asyncio.gather(*calls)
        assert order == [*range(65)]

    asyncio.run(run())


def test_lists_of_numbers_are_read_as_one_by_one() -> None:
    reader = Items(Whole(0, 9), 1)
    assert reader.read([0, 9, 3], "tokens") == (0, 9, 3)
    assert reader.read([0, 2.0], "tokens") == (0, 2)
    for wrong in (-1, 10, True, "1", 1.5, None, 10**400):
        with pytest.raises(RequestError, match=r"tokens\[2\]: expected a whole number from 0 to 9"):
            reader.read([0, 1, wrong, wrong], "tokens")
    assert json.dumps(reader.read([1] * 3, "tokens")) == "[1, 1, 1]"
