"""Models that embed texts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tapeline.server._ranking_model import Ranking
from tapeline.server._turns import Turns
from tapeline.text import Tokenizer


class TextEmbedder(Protocol):
    """``LoadedModel`` of a sentence embedder, as far as the server needs it."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Returns one vector f32 [texts, D] for each text."""
        ...

    def close(self) -> None:
        """Closes the session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingModel(Ranking):
    """Model that embeds texts, for several threads: one call runs at a time. It ranks them by cosines.

    Attributes:
        embedder: makes the vectors.
        tokenizer: text to tokens.
    """

    embedder: TextEmbedder
    tokenizer: Tokenizer
    _turns: Turns = field(default_factory=Turns, repr=False)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Returns one vector f32 [texts, D] for each text.

        Raises:
            InputError: a text has more tokens than the model takes.
            BusyError: too many calls wait.
        """
        return self._turns.take(lambda: self.embedder.embed(texts))

    def rank(self, query: str, documents: Sequence[str]) -> list[float]:
        """Returns the cosine of each document's vector with the query's; errors as of ``embed``."""
        first, *others = self.embed([query, *documents])
        return [_cosine(first, other) for other in others]

    def ranked_tokens(self, query: str, documents: Sequence[str]) -> int:
        """Returns the number of tokens of all texts."""
        return sum(len(self.tokenizer.encode(text)) for text in (query, *documents))

    def drain(self, seconds: float) -> None:
        """Waits for the call that runs."""
        self._turns.drain(seconds)

    def close(self) -> None:
        """Frees the model."""
        self._turns.last(self.embedder.close)


def _cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right)))
