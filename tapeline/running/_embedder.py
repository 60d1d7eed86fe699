"""Sentence embeddings with a bundle."""

from collections.abc import Sequence

import numpy as np

from tapeline.bundle import Bundle
from tapeline.engines import Session
from tapeline.running._calls import TextCalls
from tapeline.running._prompts import Prompts
from tapeline.text import Tokenizer


class SentenceEmbedder:
    """Bundle of a sentence-transformers model, in a session.

    Attributes:
        sequence: largest number of tokens of a sentence, special ones included.
    """

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer) -> None:
        """Checks that the bundle embeds sentences.

        Raises:
            InputError: the bundle embeds no sentences.
            ConfigError: its prompts are damaged.
        """
        self._calls = TextCalls(
            bundle,
            session,
            "sentence_embedding",
            "embeds no sentences",
            "export a model that has modules.json of sentence-transformers beside its config.json",
        )
        self._prompts = Prompts.read(bundle.path)
        self._tokenizer = tokenizer
        self.sequence = self._calls.sequence

    def __call__(self, texts: Sequence[str], prompt_name: str | None = None) -> np.ndarray:
        """Returns one row f32 [D] for each text, with the prompt of that name, or the model's default, before it.

        Raises:
            InputError: a text has more tokens than the bundle takes, or there is no such prompt.
        """
        before = self._prompts.text(prompt_name)
        return self._calls([self._encoded(f"{before}{text}") for text in texts])

    def _encoded(self, text: str) -> tuple[list[int], list[int]]:
        ids = self._tokenizer.encode(text, self._calls.vocabulary)
        self._calls.check(text, len(ids))
        return ids, [0] * len(ids)
