"""/v1/rerank with a model that reads query and document together."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lang_core import InputError
from tapeline.running import TextArray
from tapeline.server import ModelSource, RankingModel, ServerOptions
from tapeline.server._server_testing import RunningServer, running
from tapeline.text import EncodedText


class Overlap:
    """Reranker whose score is the share of the document's letters that the query has."""

    def rerank(self, query: str, documents: Any, *, truncate: bool = True, check: Any = None) -> TextArray:
        """Returns a score for each document, of which 20 letters are read."""
        if any(len(document) > 20 for document in documents) and not truncate:
            raise InputError("'a long ...' has 30 tokens, the model reads 20: shorten it")
        read = [one[:20] for one in documents]
        scores = np.array([len(set(query) & set(one)) / len(set(one)) for one in read], np.float32)
        counts = [self.pair_tokens(query, one) for one in read]
        cut = [len(one) - len(kept) for one, kept in zip(documents, read, strict=True)]
        encoded = [EncodedText([0] * count, [0] * count, lost) for count, lost in zip(counts, cut, strict=True)]
        return TextArray.of(scores, encoded)

    def pair_tokens(self, query: str, document: str) -> int:
        """Returns the number of letters of both."""
        return len(query) + len(document)

    def close(self) -> None:
        """Frees nothing."""


@pytest.fixture(scope="module", name="server")
def ranking_server() -> Iterator[RunningServer]:
    model = RankingModel(name="overlap", created=1, context=20, ranker=Overlap())
    with running([ModelSource(model.name, lambda: model)], ServerOptions(port=0)) as started:
        yield started


def test_documents_by_their_scores(server: RunningServer) -> None:
    body = {"model": "overlap", "query": "abc", "documents": ["xyz", "ab", {"text": "ax"}], "top_n": 2}
    ranked = server.request("/v1/rerank", body).json
    assert [(one["index"], one["relevance_score"]) for one in ranked["results"]] == [(1, 1.0), (2, 0.5)]
    assert ranked["results"][1]["document"] == {"text": "ax"}
    assert ranked["usage"] == {"prompt_tokens": 16, "total_tokens": 16}
    assert ranked["model"] == "overlap"


def test_what_is_cut_off_is_counted(server: RunningServer) -> None:
    ranked = server.request("/v1/rerank", {"query": "abc", "documents": ["a" * 30, "b" * 21, "c"]}).json
    assert ranked["usage"] == {"prompt_tokens": 50, "total_tokens": 50, "truncated_tokens": 11}


def test_what_is_refused(server: RunningServer) -> None:
    long = server.request("/v1/rerank", {"query": "abc", "documents": ["a" * 30], "truncate": False})
    assert (long.status, long.json["error"]["message"]) == (
        400,
        "'a long ...' has 30 tokens, the model reads 20: shorten it",
    )
    embedded = server.request("/v1/embeddings", {"model": "overlap", "input": "abc"})
    assert embedded.status == 400
    assert "model 'overlap' embeds no sentences" in embedded.json["error"]["message"]
