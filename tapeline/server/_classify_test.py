"""/classify, with a classifier and with a reranker that is a classifier of one class."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lang_core import InputError
from tapeline.running import TextArray
from tapeline.server import ClassifyingModel, ModelSource, RankingModel, ServerOptions
from tapeline.server._server_testing import RunningServer, running
from tapeline.text import EncodedText


class Vowels:
    """Classifier whose logits are the numbers of vowels and of other letters, of which 12 are read."""

    tokenizer: Any = None
    labels = ("vowels", "others")

    def __init__(self) -> None:
        self.calls: list[int] = []

    def classify(self, texts: Any, *, raw: bool = False, truncate: bool = True, check: Any = None) -> TextArray:
        """Returns the shares of vowels and others; the numbers if ``raw``."""
        if any(len(text) > 12 for text in texts) and not truncate:
            raise InputError("'a long ...' has 20 tokens, the model reads 12: shorten it")
        self.calls.append(len(texts))
        read = [text[:12] for text in texts]
        counts = np.array([[sum(letter in "aeiou" for letter in text), len(text)] for text in read], np.float32)
        counts[:, 1] -= counts[:, 0]
        cut = [len(text) - len(kept) for text, kept in zip(texts, read, strict=True)]
        encoded = [EncodedText([0] * len(one), [0] * len(one), lost) for one, lost in zip(read, cut, strict=True)]
        return TextArray.of(counts if raw else counts / counts.sum(1, keepdims=True), encoded)

    def rerank(self, query: str, documents: Any, *, truncate: bool = True, check: Any = None) -> TextArray:
        """Returns the share of vowels of each document."""
        return TextArray.of(np.asarray(self.classify(documents))[:, 0], [EncodedText([0], [0]) for _ in documents])

    def pair_tokens(self, query: str, document: str) -> int:
        """Returns the number of letters of both."""
        return len(query) + len(document)

    def close(self) -> None:
        """Frees nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    reader: dict[str, Any] = {"created": 1, "context": 20}
    models = [
        ClassifyingModel(name="vowels", classifier=Vowels(), **reader),
        RankingModel(name="both", ranker=Vowels(), classifier=Vowels(), **reader),
        RankingModel(name="ranks", ranker=Vowels(), **reader),
    ]
    sources = [ModelSource(model.name, lambda model=model: model) for model in models]
    with running(sources, ServerOptions(port=0)) as started:
        yield started


@pytest.mark.parametrize("path", ["/classify", "/v1/classify", "/classify/"])
def test_labels_and_scores_in_the_form_of_vllm(server: RunningServer, path: str) -> None:
    answered = server.request(path, {"model": "vowels", "input": ["aab", "bcdf"]}).json
    assert answered["id"].startswith("classify-")
    assert (answered["object"], answered["model"]) == ("list", "vowels")
    assert isinstance(answered["created"], int)
    assert answered["data"] == [
        {"index": 0, "label": "vowels", "probs": [pytest.approx(2 / 3), pytest.approx(1 / 3)], "num_classes": 2},
        {"index": 1, "label": "others", "probs": [0.0, 1.0], "num_classes": 2},
    ]
    assert answered["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


@pytest.mark.parametrize("name", ["use_activation", "activation", "softmax"])
def test_logits(server: RunningServer, name: str) -> None:
    answered = server.request("/classify", {"model": "vowels", "input": "aab", name: False}).json
    assert answered["data"][0]["probs"] == [2.0, 1.0]


def test_a_reranker_of_one_class_classifies_too(server: RunningServer) -> None:
    answered = server.request("/classify", {"model": "both", "input": "aab"}).json
    assert answered["data"][0]["label"] == "vowels"
    ranked = server.request("/v1/rerank", {"model": "both", "query": "a", "documents": ["b", "a"]}).json
    assert [one["index"] for one in ranked["results"]] == [1, 0]
    refused = server.request("/classify", {"model": "ranks", "input": "aab"})
    assert (refused.status, refused.json["error"]["message"]) == (
        400,
        "ranks ranks documents and classifies no texts: ask /score for scores",
    )


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"input": "a" * 13, "truncate": False}, 400, "has 20 tokens, the model reads 12: shorten it"),
        ({"input": [1, 2]}, 400, "input: the model has no tokenizer: send texts"),
        ({"input": ""}, 400, "input: "),
        ({}, 400, "input: this field is required"),
        ({"input": "a", "model": "none"}, 404, "model 'none' not found"),
    ],
)
def test_what_is_refused(server: RunningServer, body: dict[str, Any], status: int, message: str) -> None:
    answered = server.request("/classify", {"model": "vowels", **body})
    assert answered.status == status
    assert message in answered.json["error"]["message"]


def test_other_routes_name_what_the_model_does_not_do(server: RunningServer) -> None:
    refused = server.request("/v1/embeddings", {"model": "vowels", "input": "a"})
    assert "model 'vowels' embeds no sentences" in refused.json["error"]["message"]
    refused = server.request("/v1/score", {"model": "vowels", "text_1": "a", "text_2": "b"})
    assert "model 'vowels' ranks no documents" in refused.json["error"]["message"]
    counted = server.request("/classify", {"model": "vowels", "input": "a" * 15}).json["usage"]
    assert counted == {"prompt_tokens": 12, "total_tokens": 12, "truncated_tokens": 3}
