"""Vectors of each token of texts, and scores by late interaction, with a bundle of a ColBERT (arXiv:2004.12832)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from lang_core import InputError, checked_choices
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.running._calls import TextCalls
from tapeline.running._prompts import Prompts
from tapeline.running._text_array import TextArray
from tapeline.text import EncodedText, TextEncoder, Tokenizer
from transformer_core import ConfigFields, read_transformer_settings

TextTask = Literal["query", "document"]
"""Use of a text: it asks, or it is searched."""
_RESULT: Final = "token_embeddings"
_SIMILARITIES: Final = ("maxsim", "meanmaxsim")
_STRATEGIES: Final = ("fixed", "min")


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """Vectors of a text.

    Attributes:
        vectors: f32 [tokens, D], a row for each token that counts.
        tokens: number of tokens that were read, those that expand a query included.
        truncated: number of tokens that were cut off.
    """

    vectors: np.ndarray
    tokens: int
    truncated: int


@dataclass(frozen=True, slots=True)
class _Expansion:
    """Tokens that a query is filled up with.

    Attributes:
        token: their id.
        length: number of tokens of a query with them.
        fixed: whether longer queries are truncated to that length.
        attend: whether tokens attend to them.
    """

    token: int
    length: int
    fixed: bool
    attend: bool


class MultiVectorEmbedder:
    """Bundle of a model with a vector for each token, in a session."""

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer) -> None:
        """Checks that the bundle gives vectors of tokens.

        Raises:
            InputError: it does not.
            ConfigError: its files are damaged, or say what is not supported.
        """
        remedy = "export a MultiVectorEncoder of sentence-transformers (ColBERT)"
        self._calls: Final = TextCalls(bundle, session, (_RESULT,), "gives no vectors of tokens", remedy)
        self._prompts: Final = Prompts.read(bundle.path, _SIMILARITIES)
        settings = read_transformer_settings(bundle.path)
        whole = self._calls.encoder(tokenizer)
        self._expansion: Final = _expansion(settings, whole, tokenizer)
        limits = {task: _limit(settings, f"{task}_length") for task in ("query", "document")}
        if self._expansion is not None:
            asked, least = limits["query"], self._expansion.length
            limits["query"] = least if self._expansion.fixed else None if asked is None else max(asked, least)
        known = self._calls.settings
        self._encoders: Final = {
            task: TextEncoder(
                tokenizer,
                self._calls.max_tokens if limit is None else limit,
                lower_case=known.lower_case,
                from_left=known.from_left,
            )
            for task, limit in limits.items()
        }
        pooling = bundle.config.model["pooling"]
        skipped, unknown = [whole.id_of(word) for word in pooling["skipped_words"]], tokenizer.tokens.get("unk_token")
        self._skipped: Final = np.array([one for one in skipped if one not in (None, whole.id_of(unknown))], np.int64)
        self._skips: Final = tuple(pooling["skipped_tasks"])

    @checked_choices
    def __call__(
        self,
        texts: Sequence[str],
        task: TextTask = "document",
        *,
        truncate: bool = True,
        check: Callable[[], object] = lambda: None,
    ) -> list[TokenVectors]:
        """Returns the vectors of each text.

        Args:
            texts: the texts.
            task: use of the texts; decides the prompt, the length, and which tokens count.
            truncate: False refuses texts that are longer than the model reads.
            check: is called before each text is encoded and each call of the model; what it raises ends the work.

        Raises:
            InputError: a text has more tokens than the bundle takes.
        """
        encoded: list[EncodedText] = []
        for text in texts:
            check()
            encoded.append(self._encoded(text, task, truncate=truncate))
        rows = self._calls.of_tokens(encoded, check)
        return [
            TokenVectors(row[self._counted(one, task)], len(one.ids), one.truncated)
            for one, row in zip(encoded, rows, strict=True)
        ]

    @checked_choices
    def tokens(self, text: str, task: TextTask) -> int:
        """Returns the number of tokens of a text that are read."""
        return len(self._encoded(text, task, truncate=True).ids)

    def score(self, query: np.ndarray, document: np.ndarray) -> float:
        """Returns the sum, or mean, over vectors [M, D] of a query of the greatest product with one of a document."""
        if not len(document):
            return 0.0
        best = (query @ document.T).max(1)
        return float(best.sum() if self._prompts.similarity == _SIMILARITIES[0] else best.mean())

    def _encoded(self, text: str, task: TextTask, *, truncate: bool) -> EncodedText:
        before = self._prompts.text(task) if task in self._prompts.named else self._prompts.text()
        one = self._encoders[task].encode(f"{before}{text}", self._calls.vocabulary)
        one, expansion = self._calls.typed(one), self._expansion
        if task == "query" and expansion is not None and len(one.ids) < expansion.length:
            more = expansion.length - len(one.ids)
            ids, types = [*one.ids, *[expansion.token] * more], [*one.types, *[0] * more]
            one = replace(one, ids=ids, types=types, unseen=0 if expansion.attend else more)
        self._calls.check(text, one, truncate=truncate)
        return one

    def _counted(self, text: EncodedText, task: TextTask) -> np.ndarray:
        """Returns bool [tokens], true for tokens whose vectors count."""
        ids = np.array(text.ids)
        return ~np.isin(ids, self._skipped) if task in self._skips else np.ones(ids.shape, np.bool_)


class LateRanker:
    """Scores of documents for a query by their tokens' vectors, with a bundle of a ColBERT."""

    def __init__(self, embedder: MultiVectorEmbedder) -> None:
        """Takes the embedder of the vectors."""
        self._embedder: Final = embedder

    def __call__(
        self,
        query: str,
        documents: Sequence[str],
        *,
        truncate: bool = True,
        check: Callable[[], object] = lambda: None,
    ) -> TextArray:
        """Returns the score f32 of each document; arguments and ``InputError`` as of ``TextRanker``."""
        (asked,) = self._embedder([query], "query", truncate=truncate, check=check)
        searched = self._embedder(documents, "document", truncate=truncate, check=check)
        scores = np.array([self._embedder.score(asked.vectors, one.vectors) for one in searched], np.float32)
        counts = [
            EncodedText([0] * (asked.tokens + one.tokens), [], asked.truncated + one.truncated) for one in searched
        ]
        return TextArray.of(scores, counts)

    def pair_tokens(self, query: str, document: str) -> int:
        """Returns the number of tokens of a query and a document that are read."""
        return self._embedder.tokens(query, "query") + self._embedder.tokens(document, "document")


def has_token_vectors(bundle: Bundle) -> bool:
    """Returns whether a bundle gives a vector for each token."""
    forward = next((point for point in bundle.config.entry_points if point.name == "forward"), None)
    return forward is not None and _RESULT in [result.name for result in forward.results]


def _limit(fields: ConfigFields, name: str) -> int | None:
    return fields.integer(name) if fields.has(name) else None


def _expansion(settings: ConfigFields, encoder: TextEncoder, tokenizer: Tokenizer) -> _Expansion | None:
    if not settings.has("query_expansion"):
        return None
    fields = settings.object("query_expansion")
    token = fields.values.get("token")
    named = token or tokenizer.tokens.get("mask_token") or tokenizer.tokens.get("eos_token")
    number = encoder.id_of(named)
    if number is None:
        raise InputError(
            f"{settings.where}: query_expansion fills queries with {named or 'the mask_token'}, which the tokenizer "
            "lacks: put the model's tokenizer files there"
        )
    return _Expansion(
        number,
        fields.integer("length"),
        fields.choice("strategy", _STRATEGIES) == _STRATEGIES[0],
        fields.boolean("attend", False),
    )
