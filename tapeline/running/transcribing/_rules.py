"""Rules for the next token of a transcription."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from lang_core import InputError, VerificationError, checked_choices
from tapeline.running.transcribing._config import SpeechConfig


@checked_choices
class TokenRules:
    """Tokens that may come next; those of transformers' ``WhisperTimeStampLogitsProcessor``, and suppressed tokens.

    Timestamps come in pairs, the end of a segment and the start of the next; they do not decrease; the first token is
    one; and if all timestamps together are likelier than any other token, the next token is one of them.

    Attributes:
        timestamps: whether timestamps are asked for.
    """

    def __init__(self, config: SpeechConfig, vocabulary: int, *, timestamps: bool) -> None:
        """Makes the rules of a window.

        Args:
            config: the model's settings.
            vocabulary: V.
            timestamps: whether timestamps are asked for.

        Raises:
            InputError: they are, and the model has none.
        """
        if timestamps and config.first_timestamp >= vocabulary:
            raise InputError(
                f"{config.where}: no token is a timestamp (no_timestamps_token_id), and sound that is longer than a "
                "window needs them: give shorter sound and timestamps=False"
            )
        self._config: Final = config
        self.timestamps: Final = timestamps
        self._suppressed: Final = np.zeros(vocabulary, np.bool_)
        self._suppressed[list(config.suppressed)] = True
        if timestamps:
            self._suppressed[config.no_timestamps] = True

    def choose(self, logits: np.ndarray, tokens: Sequence[int]) -> int:
        """Returns the likeliest token by logits f32 [V] that may come; arguments and errors as of ``scores``."""
        return int(np.argmax(self.scores(logits, tokens)))

    def scores(self, logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        """Returns the logits f32 [V] of tokens that may come, and -inf of others.

        Args:
            logits: f32 [V].
            tokens: tokens of the window so far, without the prompt.

        Raises:
            VerificationError: a logit is NaN or infinite, or all tokens are forbidden.
        """
        if not np.isfinite(logits).all():
            raise VerificationError(
                "logits of a transcription are NaN or infinite: look for such weights in the checkpoint, or export "
                "with a wider `dtype`"
            )
        scores = np.where(self._suppressed, -np.inf, logits)
        if not tokens:
            scores[list(self._config.first_suppressed)] = -np.inf
        if self.timestamps:
            self._hold_to_timestamps(scores, tokens, self._config.first_timestamp)
        if np.isneginf(scores.max()):
            raise VerificationError(f"{self._config.where}: every token that may come next is suppressed")
        return scores

    def _hold_to_timestamps(self, scores: np.ndarray, tokens: Sequence[int], begin: int) -> None:
        """Sets the scores of tokens that may not come to -inf."""
        after_timestamp = bool(tokens) and tokens[-1] >= begin
        after_pair = after_timestamp and (len(tokens) < 2 or tokens[-2] >= begin)
        if after_pair:
            scores[begin:] = -np.inf
        elif after_timestamp:
            scores[: self._config.eos] = -np.inf
        latest = next((token for token in reversed(tokens) if token >= begin), None)
        if latest is not None:
            scores[begin : latest + (0 if after_timestamp and not after_pair else 1)] = -np.inf
        if not tokens:
            scores[:begin] = -np.inf
            if self._config.latest_first is not None:
                scores[begin + self._config.latest_first + 1 :] = -np.inf
        if _total(scores[begin:]) > scores[:begin].max():
            scores[:begin] = -np.inf


def _total(scores: np.ndarray) -> float:
    """Returns the logarithm of the sum of exponentials."""
    highest = scores.max()
    return -np.inf if np.isneginf(highest) else float(highest + np.log(np.exp(scores - highest).sum()))
