"""Models that are replaced while requests to them are prepared, wait or run: each request is answered by its model."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import DeviceError
from tapeline.running import TextArray
from tapeline.server import EmbeddingModel, RankingModel, _chat, _completions, _tokens
from tapeline.server._model import ServedModel
from tapeline.server._models import ModelSource
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._server_testing import VOCABULARY, Answered, RunningServer, running, text_model
from tapeline.text import EncodedText

_HELLO = [{"role": "user", "content": "Hello"}]
_TEXTS = ["a", "b"]


class _Reader:
    """Embedder and reranker whose session ends when it is closed."""

    similarity = "cosine"
    tokenizer: Any = None

    def __init__(self, wait: Callable[[], object] = lambda: None) -> None:
        self._wait, self.closed = wait, False

    def embed(
        self, texts: Sequence[str], *, prompt_name: str | None = None, truncate: bool = True, check: Any = None
    ) -> TextArray:
        del prompt_name, truncate, check
        self._wait()
        if self.closed:
            raise DeviceError("the session is closed: open it again")
        counts = [EncodedText([0], [0], 0) for _ in texts]
        return TextArray.of(np.ones((len(texts), 2), np.float32), counts)

    def rerank(self, query: str, documents: Any, *, truncate: bool = True, check: Any = None) -> TextArray:
        values = self.embed([query, *documents], truncate=truncate)
        return TextArray.of(np.asarray(values)[1:, 0], [EncodedText([0], [0], 0) for _ in documents])

    def pair_tokens(self, query: str, document: str) -> int:
        return len(query) + len(document)

    def close(self) -> None:
        self.closed = True


def _embedder(reader: _Reader) -> EmbeddingModel:
    return EmbeddingModel(name="embedder", created=1, context=9, embedder=reader)


def _sources(directory: Path) -> list[ModelSource]:
    def text() -> ServedModel:
        return text_model(directory, ScriptSlots([5] * 64, VOCABULARY))

    return [
        ModelSource("demo", text),
        ModelSource("embedder", lambda: _embedder(_Reader())),
        ModelSource("ranker", lambda: RankingModel(name="ranker", created=1, context=9, ranker=_Reader())),
    ]


def _await_event(server: RunningServer, event: str, count: int) -> None:
    pause = threading.Event()
    while sum(line["event"] == event for line in server.logged()) < count:
        pause.wait(0.01)


@pytest.mark.parametrize(
    ("owner", "name", "path", "body"),
    [
        (
            _chat,
            "in_thread",
            "/v1/chat/completions",
            {"messages": _HELLO, "max_tokens": 3, "response_format": {"type": "text"}},
        ),
        (_completions, "in_thread", "/v1/completions", {"prompt": ["a", "b"], "max_tokens": 3}),
        (EmbeddingModel, "embed_batched", "/v1/embeddings", {"input": _TEXTS}),
        (RankingModel, "rank_batched", "/v1/rerank", {"model": "ranker", "query": "a", "documents": _TEXTS}),
        (_tokens, "in_thread", "/tokenize", {"prompt": "a"}),
    ],
)
def test_a_request_that_is_prepared_keeps_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, path: str, body: Any
) -> None:
    prepared, replaced = threading.Event(), threading.Event()
    work = getattr(owner, name)

    async def late(*arguments: Any, **options: Any) -> Any:
        prepared.set()
        await asyncio.to_thread(replaced.wait, 60)
        return await work(*arguments, **options)

    monkeypatch.setattr(owner, name, late)
    with running(_sources(tmp_path)) as server:
        answers: list[Answered] = []
        client = threading.Thread(target=lambda: answers.append(server.request(path, body)))
        client.start()
        try:
            assert prepared.wait(60)
            server.service.models.reload()
            _await_event(server, "retired", 2)  # those that no request uses; without leases, the third one as well
            assert sum(line["event"] == "retired" for line in server.logged()) == 2
        finally:
            replaced.set()
            client.join()
        assert answers[0].status == 200, answers[0].body
        _await_event(server, "retired", 3)


def test_a_call_that_waits_for_its_turn_keeps_its_model() -> None:
    calling, go_on = threading.Semaphore(0), threading.Event()

    def wait() -> None:
        calling.release()
        assert go_on.wait(60)

    first = _Reader(wait)
    readers = [first, _Reader()]
    with running([ModelSource("embedder", lambda: _embedder(readers.pop(0)))]) as server:
        answers: list[Answered] = []
        clients = [
            threading.Thread(target=lambda: answers.append(server.request("/v1/embeddings", {"input": _TEXTS})))
            for _ in range(3)
        ]
        for client in clients:
            client.start()
        assert calling.acquire(timeout=60)
        while server.service.active < len(clients):
            threading.Event().wait(0.01)
        server.service.models.reload()
        go_on.set()
        for client in clients:
            client.join()
        assert [answer.status for answer in answers] == [200] * 3, [answer.body for answer in answers]
        _await_event(server, "retired", 1)
        assert first.closed
        assert server.request("/v1/embeddings", {"input": _TEXTS}).status == 200
