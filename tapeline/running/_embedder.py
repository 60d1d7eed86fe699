"""Sentence embeddings with a bundle."""

from collections.abc import Sequence

import numpy as np

from lang_core import InputError
from run_iree import Session
from tapeline.bundle import Bundle
from tapeline.text import Tokenizer

_RESULT = "sentence_embedding"


class SentenceEmbedder:
    """Bundle of a sentence-transformers model, in a session.

    Attributes:
        sequence: largest number of tokens of a sentence, special ones included.
    """

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer) -> None:
        """Checks that the bundle embeds sentences.

        Raises:
            InputError: the bundle embeds no sentences.
        """
        forward = next((point for point in bundle.config.entry_points if point.name == "forward"), None)
        results = [] if forward is None else [result.name for result in forward.results]
        if forward is None or _RESULT not in results:
            raise InputError(
                f"{bundle.path} embeds no sentences (it gives {', '.join(results) or 'none'}): export a model that has "
                "modules.json of sentence-transformers beside its config.json"
            )
        self._batch, self.sequence = forward.arguments[0].spec.shape
        self._arguments = [argument.name for argument in forward.arguments]
        self._vocabulary = bundle.config.model["vocabulary"]
        self._result = results.index(_RESULT)
        self._forward = session.function("forward")
        self._tokenizer = tokenizer

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Returns one row f32 [D] for each text.

        Raises:
            InputError: a text has more tokens than the bundle takes.
        """
        ids = [self._ids(text) for text in texts]
        rows = [self._embedded(ids[i : i + self._batch]) for i in range(0, len(ids), self._batch)]
        return np.concatenate(rows)

    def _ids(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text, self._vocabulary)
        if len(ids) > self.sequence:
            raise InputError(
                f"{text[:40]!r}{'...' if len(text) > 40 else ''} has {len(ids)} tokens, the bundle takes "
                f"{self.sequence}: shorten it, or export with sequence={len(ids)} or more"
            )
        return ids

    def _embedded(self, sentences: Sequence[list[int]]) -> np.ndarray:
        """Embeds up to B sentences; rows that are left over repeat the first one, because every row needs a token."""
        ids = np.zeros((self._batch, self.sequence), np.int32)
        mask = np.zeros_like(ids)
        for row in range(self._batch):
            sentence = sentences[row] if row < len(sentences) else sentences[0]
            ids[row, : len(sentence)] = sentence
            mask[row, : len(sentence)] = 1
        given = {"token_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        results = self._forward(*(given[name] for name in self._arguments))
        return results[self._result].numpy()[: len(sentences)]
