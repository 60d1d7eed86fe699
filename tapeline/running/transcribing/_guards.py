"""Guards against text that nobody said: silence, repetition and improbable text, as in Whisper's own decoding."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lang_core import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Bounds of a window's text; None for no bound. The defaults are those of Whisper and of faster-whisper.

    A text that breaks a bound is decoded again with the next temperature; the last one's counts.

    Attributes:
        temperatures: of the attempts, ascending; 0 takes the likeliest token, others draw.
        most_compression: greatest ratio by which zlib compresses the tokens: more is repetition.
        least_log_probability: least mean of the tokens' log probabilities.
        most_silence: greatest probability of silence of a text below ``least_log_probability``; beyond it the window
            has no text.
        seed: of the draws, which are the same in every run.
    """

    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    most_compression: float | None = 2.4
    least_log_probability: float | None = -1.0
    most_silence: float | None = 0.6
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            InputError: a temperature is missing or below 0, or a bound of silence lacks one of probability.
        """
        if not self.temperatures or not all(0 <= value < math.inf for value in self.temperatures):
            raise InputError(f"temperatures: expected one or more, each 0 or more; found {self.temperatures}")
        if self.most_silence is not None and self.least_log_probability is None:
            raise InputError(
                "most_silence: a window is silent if its text is improbable, too: give `least_log_probability`"
            )


NO_GUARDS = Guards(temperatures=(0.0,), most_compression=None, least_log_probability=None, most_silence=None)
"""One attempt, and no bounds: transformers' default."""


def compression(tokens: Sequence[int], vocabulary: int) -> float:
    """Returns the ratio by which zlib compresses tokens, as transformers measures it."""
    if not tokens:
        return 0.0
    length = int(math.log2(vocabulary) / 8) + 1
    plain = b"".join(token.to_bytes(length, "little") for token in tokens)
    return len(plain) / len(zlib.compress(plain))


def log_probability(scores: np.ndarray, token: int) -> float:
    """Returns the log probability of a token, of scores f32 [V] of which some may be -inf."""
    highest = scores.max()
    return float(scores[token] - highest - np.log(np.exp(scores - highest).sum()))


def drawn(scores: np.ndarray, temperature: float, random: np.random.Generator) -> int:
    """Draws a token by scores f32 [V]."""
    powers = np.exp((scores - scores.max()).astype(np.float64) / temperature)
    return int(random.choice(len(powers), p=powers / powers.sum()))
