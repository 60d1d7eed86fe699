"""Sparse vectors of texts: weights of the vocabulary's tokens, with a masked language model (SPLADE)."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from lang_core import InputError
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.running._calls import TextCalls
from tapeline.running._text_array import TextArray
from tapeline.text import EncodedText, Tokenizer


class SparseEmbedder:
    """Bundle of a masked language model that weighs tokens, in a session (Formal et al. 2021, arXiv:2109.10086).

    The weight of a token is the largest log(1 + relu(logit)) of all places of the text, as sentence-transformers'
    ``SpladePooling`` computes it.
    """

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer) -> None:
        """Checks that the bundle predicts tokens.

        Raises:
            InputError: it does not.
            ConfigError: its files are damaged, or say what is not supported.
        """
        remedy = "export a model ForMaskedLM, such as a SPLADE"
        self._calls: Final = TextCalls(bundle, session, ("logits",), "gives no sparse vectors", remedy)
        if any(bundle.config.model.get(name) for name in ("labels", "token_labels")):
            raise InputError(f"{bundle.path} gives no sparse vectors, its logits are of classes: {remedy}")
        self._tokenizer: Final = tokenizer
        self._encoder: Final = self._calls.encoder(tokenizer)

    def __call__(
        self, texts: Sequence[str], *, truncate: bool = True, check: Callable[[], object] = lambda: None
    ) -> TextArray:
        """Returns the weights f32 [texts, V]; most are 0.

        Args:
            texts: the texts.
            truncate: False refuses texts that are longer than the model reads.
            check: is called before each text is encoded and each call of the model; what it raises ends the work.

        Raises:
            InputError: a text has more tokens than the bundle takes.
        """
        encoded: list[EncodedText] = []
        for text in texts:
            check()
            one = self._encoder.encode(text, self._calls.vocabulary)
            self._calls.check(text, one, truncate=truncate)
            encoded.append(self._calls.typed(one))
        weights = [_weights(logits) for logits in self._calls.of_tokens(encoded, check)]
        return TextArray.of(np.stack(weights) if weights else np.zeros((0, 0), np.float32), encoded)

    def token(self, token_id: int) -> str:
        """Returns the text of a token."""
        return self._tokenizer.decode([token_id], special_tokens=True)


def _weights(logits: np.ndarray) -> np.ndarray:
    """Returns the weights f32 [V] of logits [T, V]."""
    return np.log1p(np.maximum(logits.max(0), 0)).astype(np.float32)
