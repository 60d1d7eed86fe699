"""Models that rank documents."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lang_core import InputError, checked_choices
from tapeline.running import TextArray
from tapeline.server._classifying_model import Classifying, TextClassifying
from tapeline.server._lengths import check_length, check_lengths
from tapeline.server._texts_model import TextsModel
from tapeline.text import Tokenizer


@dataclass(frozen=True, slots=True)
class Ranked:
    """Scores of documents.

    Attributes:
        scores: score of each document.
        tokens: number of tokens that the model read, of the query and all documents.
        truncated: number of tokens that were cut off.
    """

    scores: list[float]
    tokens: int
    truncated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking(TextsModel, ABC):
    """Model that says how well documents answer a query."""

    @abstractmethod
    def rank(self, query: str, documents: Sequence[str], *, truncate: bool = True) -> Ranked:
        """Returns the score of each document.

        Args:
            query: the query.
            documents: the documents.
            truncate: whether texts that are longer than the model reads are truncated, and not refused.

        Raises:
            InputError: a text has more tokens than the model takes.
            BusyError: too many calls wait.
        """

    @checked_choices
    async def rank_batched(self, query: str, documents: Sequence[str], *, truncate: bool = True) -> Ranked:
        """Like ``rank``, but waits for a call without a thread."""
        async with self._turns.turn():
            return await asyncio.to_thread(partial(self.rank, query, documents, truncate=truncate))

    def check_texts(self, texts: Sequence[str], field: str, query: str = "") -> None:
        """Checks the lengths of texts, and of the query that they are compared with, before they are encoded.

        Raises:
            RequestError: a text is too long, or all together are; ``field`` has the texts.
        """
        check_length(len(query), self.context, "query")
        check_lengths([len(text) for text in texts], self.context, field)


class TextRanking(Protocol):
    """``LoadedModel`` of a reranker, as far as the server needs it."""

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        truncate: bool = True,
        check: Callable[[], object] | None = None,
    ) -> TextArray:
        """Returns a score f32 [documents] for each document; ``check`` is called as the work goes on."""
        ...

    def pair_tokens(self, query: str, document: str) -> int:
        """Returns the number of tokens of a pair."""
        ...

    def close(self) -> None:
        """Closes the session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingModel(Ranking, Classifying):
    """Model that reads query and document together, for several threads: one call runs at a time.

    Attributes:
        ranker: makes the scores.
        classifier: the same as a classifier of one class; None if it classifies no texts.
    """

    ranker: TextRanking
    classifier: TextClassifying | None = None

    def check_texts(self, texts: Sequence[str], field: str, query: str = "") -> None:
        """Checks the lengths of texts, each of which is encoded together with the query."""
        check_length(len(query), self.context, "query")
        check_lengths([len(query) + len(text) for text in texts], self.context, field)

    @checked_choices
    def rank(self, query: str, documents: Sequence[str], *, truncate: bool = True) -> Ranked:
        """Returns the score of each document."""
        beat = self._turns.activity.beat
        scores = self._turns.take(lambda: self.ranker.rerank(query, documents, truncate=truncate, check=beat))
        return Ranked([float(score) for score in scores], int(scores.tokens.sum()), int(scores.truncated.sum()))

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self._classifier.labels

    @property
    def classifying_tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the classifier; None if it has none."""
        return self._classifier.tokenizer

    @checked_choices
    async def classify_batched(self, texts: Sequence[str], *, raw: bool = False, truncate: bool = True) -> TextArray:
        """Returns scores f32 [texts, 1], or logits."""
        classify, beat = self._classifier.classify, self._turns.activity.beat
        call = partial(classify, texts, raw=raw, truncate=truncate, check=beat)
        async with self._turns.turn():
            return await asyncio.to_thread(self._turns.take, call)

    @property
    def _classifier(self) -> TextClassifying:
        if self.classifier is None:
            raise InputError(f"{self.name} ranks documents and classifies no texts: ask /score for scores")
        return self.classifier

    def close(self) -> None:
        """Frees the model."""
        self._turns.last(self.ranker.close)
