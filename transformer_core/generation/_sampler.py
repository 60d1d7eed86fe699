"""Chooses a token from one row of logits."""

from collections.abc import Sequence

import numpy as np

from lang_core import ConfigError, InputError, VerificationError
from transformer_core.generation._config import SamplingConfig
from transformer_core.generation._filters import Scores, keep_min_p, keep_top_k, keep_top_p, penalized, softmax
from transformer_core.generation._prediction import Prediction

History = Sequence[int] | np.ndarray
Ids = np.ndarray[tuple[int], np.dtype[np.int64]]

_UNIT = 2.0**-53  # a float64 in [0, 1) has 53 random bits


class Sampler:
    """Chooses tokens. The same seed and the same logits give the same tokens, on every machine.

    The steps and their order are transformers': repetition penalty, temperature, top_k, top_p, min_p, draw.
    Each call that draws takes one number from the random stream; greedy choice takes none.
    """

    def __init__(self, config: SamplingConfig, vocabulary_size: int) -> None:
        """Makes a sampler for logits of shape ``[vocabulary_size]``."""
        self._config = config
        self._vocabulary_size = vocabulary_size
        # Raw bits, not a Generator: between versions NumPy keeps the stream of bits, but not that of numbers.
        self._bits = np.random.PCG64(config.seed)

    def choose(self, prediction: Prediction, history: History) -> int:
        """Returns the next token's id, without reading logits where the likeliest token is enough and known.

        Args:
            prediction: prediction of a model.
            history: ids so far, as for a call; errors are those of a call.
        """
        if self._config.temperature == 0 and self._config.repetition_penalty == 1:
            token_id = prediction.likeliest()
            if 0 <= token_id < self._vocabulary_size:
                return token_id
        return self(prediction.logits(), history)

    def __call__(self, logits: np.ndarray, history: History) -> int:
        """Returns the next token's id.

        Args:
            logits: ``[V]`` float32.
            history: ids so far, of the prompt and of generated tokens.

        Raises:
            VerificationError: logits are not ``[V]`` float32, or one of them is NaN or infinite.
            InputError: an id of the history is negative.
            ConfigError: repetition_penalty is so far from 1 that a logit overflows.
        """
        scores = self._penalized(logits, history)
        if self._config.temperature == 0:
            return int(np.argmax(scores))  # the lowest index on ties
        ids, kept = self._candidates(scores)
        return int(ids[self._draw(kept)])

    def scores(self, logits: np.ndarray, history: History) -> Scores:
        """Returns the processed logits ``[V]`` float32, -inf where a token cannot be drawn. Errors as for a call."""
        scores = self._penalized(logits, history)
        if self._config.temperature == 0:
            return scores
        ids, kept = self._candidates(scores)
        processed = np.full(scores.shape, -np.inf, np.float32)
        processed[ids] = kept
        return processed

    def probabilities(self, logits: np.ndarray, history: History) -> Scores:
        """Returns the probability ``[V]`` float32 of each token to be chosen. Errors as for a call."""
        scores = self.scores(logits, history)
        if self._config.temperature > 0:
            return softmax(scores)
        chosen = np.zeros(scores.shape, np.float32)
        chosen[np.argmax(scores)] = 1
        return chosen

    def _penalized(self, logits: np.ndarray, history: History) -> Scores:
        _check_logits(logits, self._vocabulary_size)
        penalty = self._config.repetition_penalty
        if len(history) and np.min(history) < 0:
            raise InputError(f"token id {np.min(history)} in the history is negative: ids count from 0")
        if penalty == 1 or not len(history):
            return logits
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            scores = penalized(logits, history, penalty)
        if not np.isfinite(scores).all():
            token = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise ConfigError(
                f"repetition_penalty={penalty!r} takes the logit {logits[token]!s} of token {token} out of the range "
                "of f32: give a value nearer to 1"
            )
        return scores

    def _candidates(self, scores: Scores) -> tuple[Ids, Scores]:
        """Returns the ids ``[C]``, ascending, and the scores ``[C]`` of the tokens that can be drawn."""
        config = self._config
        scores = _divided(scores, config.temperature)
        ids = np.arange(scores.shape[0])
        if config.top_k > 0:
            kept = keep_top_k(scores, config.top_k)
            ids, scores = ids[kept], scores[kept]
        if config.top_p < 1:
            kept = keep_top_p(scores, config.top_p)
            ids, scores = ids[kept], scores[kept]
        if config.min_p > 0:
            kept = keep_min_p(scores, config.min_p)
            ids, scores = ids[kept], scores[kept]
        return ids, scores

    def _draw(self, scores: Scores) -> int:
        """Draws an index of scores ``[C]`` by inversion: the first whose cumulative probability exceeds a number."""
        cumulative = np.exp((scores - scores.max()).astype(np.float64)).cumsum()
        number = (int(self._bits.random_raw()) >> 11) * _UNIT  # in [0, 1)
        # The product can round up to the total; then the last token with any probability is drawn.
        index = np.searchsorted(cumulative, number * cumulative[-1], side="right")
        return int(min(index, np.searchsorted(cumulative, cumulative[-1])))


def _divided(scores: Scores, temperature: float) -> Scores:
    """Divides by the temperature; where that overflows, after moving the highest score to 0, which changes no odds."""
    divisor = np.float32(temperature)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        divided = scores / divisor
        if np.isfinite(divided).all():
            return divided
        highest = scores.max()
        return np.where(scores == highest, np.float32(0), (scores - highest) / divisor)


def _check_logits(logits: np.ndarray, vocabulary_size: int) -> None:
    if logits.shape != (vocabulary_size,) or logits.dtype != np.float32:
        raise VerificationError(
            f"logits to choose a token from are {logits.dtype}{list(logits.shape)}, expected float32"
            f"[{vocabulary_size}]: the model's output is not the vocabulary that config.json states; export it again"
        )
    finite = np.isfinite(logits)
    if not finite.all():
        bad = np.flatnonzero(~finite)
        raise VerificationError(
            f"{bad.size} of {vocabulary_size} logits are not finite, the first is {logits[bad[0]]!s} for token {bad[0]}"
            ": look for NaN or infinite weights in the checkpoint, or export with a wider `dtype`"
        )
