"""Models that embed texts."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tapeline.serving import BusyError
from tapeline.text import Tokenizer

_MOST_WAITING = 64


class TextEmbedder(Protocol):
    """``LoadedModel`` of a sentence embedder, as far as the server needs it."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Returns one vector f32 [texts, D] for each text."""
        ...

    def close(self) -> None:
        """Closes the session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingModel:
    """Model that embeds texts, for several threads: one call runs at a time.

    Attributes:
        name: name of the model.
        created: when its bundle was written, in seconds since 1970.
        context: largest number of tokens of a text.
        embedder: makes the vectors.
        tokenizer: text to tokens.
    """

    name: str
    created: int
    context: int
    embedder: TextEmbedder
    tokenizer: Tokenizer
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_MOST_WAITING), repr=False)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Returns one vector f32 [texts, D] for each text.

        Raises:
            InputError: a text has more tokens than the model takes.
            BusyError: too many calls wait.
        """
        return self._in_turn(lambda: self.embedder.embed(texts))

    def drain(self, seconds: float) -> None:
        """Waits for the call that runs."""
        if self._turn.acquire(timeout=seconds):
            self._turn.release()

    def close(self) -> None:
        """Frees the model."""
        with self._turn:
            self.embedder.close()

    def _in_turn(self, call: Callable[[], np.ndarray]) -> np.ndarray:
        if not self._waiting.acquire(blocking=False):
            raise BusyError(_MOST_WAITING, 1.0)
        try:
            with self._turn:
                return call()
        finally:
            self._waiting.release()
