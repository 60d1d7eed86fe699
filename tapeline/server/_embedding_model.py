"""Models that embed texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from lang_core import checked_choices
from tapeline.running import TextArray, similarities
from tapeline.server._ranking_model import Ranked, Ranking
from tapeline.server._text_batches import TextBatches, TextSettings
from tapeline.server._texts_model import text_of_tokens
from tapeline.text import Tokenizer


class TextEmbedder(Protocol):
    """``LoadedModel`` of a sentence embedder, as far as the server needs it."""

    @property
    def similarity(self) -> str:
        """Function that compares the vectors; see ``similarities``."""
        ...

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the model; None if it has none."""
        ...

    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        truncate: bool = True,
        check: Callable[[], object] | None = None,
    ) -> TextArray:
        """Returns one vector f32 [texts, D] for each text; ``check`` is called as the work goes on."""
        ...

    def close(self) -> None:
        """Closes the session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingModel(Ranking):
    """Model that embeds texts, for several threads: one call runs at a time. It ranks them by its similarity.

    Attributes:
        embedder: makes the vectors.
    """

    embedder: TextEmbedder
    _batches: TextBatches = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_batches", TextBatches(self._turns, self._embedded))

    def text_of(self, tokens: Sequence[int], field: str) -> str:
        """Returns the text of these tokens; see ``text_of_tokens``."""
        return text_of_tokens(self.embedder.tokenizer, tokens, field)

    @checked_choices
    def embed(self, texts: Sequence[str], prompt_name: str | None = None, *, truncate: bool = True) -> TextArray:
        """Returns one vector f32 [texts, D] for each text.

        Args:
            texts: the texts.
            prompt_name: name of a prompt of the model; its default if None.
            truncate: whether texts that are longer than the model reads are truncated, and not refused.

        Raises:
            InputError: a text has more tokens than the model takes, or the prompt does not exist.
            BusyError: too many calls wait.
        """
        return self._embedded(texts, TextSettings(prompt_name, truncate))

    @checked_choices
    async def embed_batched(
        self, texts: Sequence[str], prompt_name: str | None = None, *, truncate: bool = True
    ) -> TextArray:
        """Like ``embed``; calls take texts of several requests."""
        return await self._batches.result(texts, TextSettings(prompt_name, truncate))

    def _embedded(self, texts: Sequence[str], settings: TextSettings) -> TextArray:
        beat, options = self._turns.activity.beat, {"prompt_name": settings.prompt_name, "truncate": settings.truncate}
        return self._turns.take(lambda: self.embedder.embed(texts, **options, check=beat))

    @checked_choices
    def rank(self, query: str, documents: Sequence[str], *, truncate: bool = True) -> Ranked:
        """Returns how alike each document's vector is to the query's, by the model's own function.

        Errors as of ``embed``.
        """
        return self._ranked(self.embed([query, *documents], truncate=truncate))

    @checked_choices
    async def rank_batched(self, query: str, documents: Sequence[str], *, truncate: bool = True) -> Ranked:
        """Like ``rank``; calls take texts of several requests."""
        return self._ranked(await self.embed_batched([query, *documents], truncate=truncate))

    def _ranked(self, vectors: TextArray) -> Ranked:
        """Returns how alike the first vector is to each other one."""
        plain = np.asarray(vectors, np.float64)
        alike = similarities(self.embedder.similarity, plain[:1], plain[1:])[0]
        tokens, truncated = int(vectors.tokens.sum()), int(vectors.truncated.sum())
        return Ranked([float(score) for score in alike], tokens, truncated)

    def close(self) -> None:
        """Frees the model."""
        self._turns.last(self.embedder.close)
