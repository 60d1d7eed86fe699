"""Models that embed texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lang_core import checked_choices
from tapeline.running import TextArray, similarities
from tapeline.server._ranking_model import Ranked, Ranking


class TextEmbedder(Protocol):
    """``LoadedModel`` of a sentence embedder, as far as the server needs it."""

    @property
    def similarity(self) -> str:
        """Function that compares the vectors; see ``similarities``."""
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

    @checked_choices
    def embed(self, texts: Sequence[str], prompt_name: str | None = None, *, truncate: bool = True) -> TextArray:
        """Returns one vector f32 [texts, D] for each text.

        Args:
            texts: the texts.
            prompt_name: name of a prompt of the model; its default where None.
            truncate: whether texts that are longer than the model reads are truncated, and not refused.

        Raises:
            InputError: a text has more tokens than the model takes, or there is no such prompt.
            BusyError: too many calls wait.
        """
        beat = self._turns.activity.beat
        return self._turns.take(
            lambda: self.embedder.embed(texts, prompt_name=prompt_name, truncate=truncate, check=beat)
        )

    @checked_choices
    def rank(self, query: str, documents: Sequence[str], *, truncate: bool = True) -> Ranked:
        """Returns how alike each document's vector is to the query's, by the model's own function.

        Errors as of ``embed``.
        """
        vectors = self.embed([query, *documents], truncate=truncate)
        plain = np.asarray(vectors, np.float64)
        alike = similarities(self.embedder.similarity, plain[:1], plain[1:])[0]
        tokens, truncated = int(vectors.tokens.sum()), int(vectors.truncated.sum())
        return Ranked([float(score) for score in alike], tokens, truncated)

    def close(self) -> None:
        """Frees the model."""
        self._turns.last(self.embedder.close)
