"""Chooses a token from one row of logits."""

from collections.abc import Sequence

import numpy as np

from generation._config import SamplingConfig
from generation._filters import (
    Mask,
    Scores,
    biased,
    counted,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalized,
    softmax,
)
from generation._prediction import Prediction
from lang_core import ConfigError, InputError, VerificationError

History = Sequence[int] | np.ndarray
Ids = np.ndarray[tuple[int], np.dtype[np.int64]]

_UNIT = 2.0**-53  # a float64 in [0, 1) has 53 random bits


class Sampler:
    """Chooses tokens. The same seed and the same logits give the same tokens, on every machine.

    The steps and their order are transformers': repetition penalty, temperature, top_k, top_p, min_p, draw. Of those
    that it lacks, logit_bias comes before the repetition penalty, as in vLLM, and the penalties of frequency and
    presence behind it; tokens that a mask forbids are not candidates from the temperature on.
    Each call that draws takes one number from the random stream; greedy choice takes none.
    """

    def __init__(self, config: SamplingConfig, vocabulary_size: int) -> None:
        """Makes a sampler for logits of shape ``[vocabulary_size]``.

        Raises:
            ConfigError: logit_bias names a token that is none of them.
        """
        if config.logit_bias and max(config.logit_bias) >= vocabulary_size:
            raise ConfigError(
                f"logit_bias names token {max(config.logit_bias)}: expected 0 to {vocabulary_size - 1}, the ids of the "
                "vocabulary"
            )
        self._config = config
        counts = config.presence_penalty != 0 or config.frequency_penalty != 0
        self._moves = bool(config.logit_bias) or config.repetition_penalty != 1 or counts
        self._vocabulary_size = vocabulary_size
        # Raw bits, not a Generator: between versions NumPy keeps the stream of bits, but not that of numbers.
        self._bits = np.random.PCG64(config.seed)

    def choose(
        self, prediction: Prediction, history: History, *, prompt_tokens: int = 0, allowed: Mask | None = None
    ) -> int:
        """Returns the next token's id, without reading logits if the likeliest token is enough and known.

        Args:
            prediction: prediction of a model.
            history: as for a call; errors are those of a call.
            prompt_tokens: as for a call.
            allowed: as for a call.
        """
        if self._config.temperature == 0 and not self._moves and allowed is None:
            token_id = prediction.likeliest()
            if 0 <= token_id < self._vocabulary_size:
                return token_id
        return self(prediction.logits(), history, prompt_tokens=prompt_tokens, allowed=allowed)

    def __call__(
        self, logits: np.ndarray, history: History, *, prompt_tokens: int = 0, allowed: Mask | None = None
    ) -> int:
        """Returns the next token's id.

        Args:
            logits: ``[V]`` float32.
            history: ids so far, of the prompt and of generated tokens.
            prompt_tokens: number of the first ids of ``history`` that are the prompt's. The penalties of presence and
                frequency count those behind them.
            allowed: ``[V]`` bool, False where a token must not be chosen; None allows all.

        Raises:
            VerificationError: logits are not ``[V]`` float32, or one of them is NaN or infinite.
            InputError: an id of the history is negative, or all tokens are forbidden.
            ConfigError: a penalty or a bias is so great that a logit overflows.
        """
        scores = self._penalized(logits, history, prompt_tokens)
        ids, kept = _allowed(scores, allowed)
        if self._config.temperature == 0:
            return int(ids[np.argmax(kept)])  # the lowest index on ties
        ids, kept = self._candidates(ids, kept)
        return int(ids[self._draw(kept)])

    def scores(
        self, logits: np.ndarray, history: History, *, prompt_tokens: int = 0, allowed: Mask | None = None
    ) -> Scores:
        """Returns the processed logits ``[V]`` float32, -inf where a token cannot be drawn. Errors as for a call.

        Raises:
            InputError: all tokens are forbidden, or an id of the history is negative.
            ConfigError: a setting takes a logit out of the range of f32.
            VerificationError: the logits have another shape or dtype, or are not finite.
        """
        scores = self._penalized(logits, history, prompt_tokens)
        ids, kept = _allowed(scores, allowed)
        if self._config.temperature > 0:
            ids, kept = self._candidates(ids, kept)
        processed = np.full(scores.shape, -np.inf, np.float32)
        processed[ids] = kept
        return processed

    def probabilities(
        self, logits: np.ndarray, history: History, *, prompt_tokens: int = 0, allowed: Mask | None = None
    ) -> Scores:
        """Returns the probability ``[V]`` float32 of each token to be chosen. Errors as for a call."""
        scores = self.scores(logits, history, prompt_tokens=prompt_tokens, allowed=allowed)
        if self._config.temperature > 0:
            return softmax(scores)
        chosen = np.zeros(scores.shape, np.float32)
        chosen[np.argmax(scores)] = 1
        return chosen

    def _penalized(self, logits: np.ndarray, history: History, prompt_tokens: int) -> Scores:
        config = self._config
        _check_logits(logits, self._vocabulary_size)
        if len(history) and np.min(history) < 0:
            raise InputError(f"token id {np.min(history)} in the history is negative: ids count from 0")
        if not self._moves:
            return logits
        scores = logits
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if config.logit_bias:
                scores = biased(scores, config.logit_bias)
                _check_range("logit_bias", scores, logits, "0")
            if config.repetition_penalty != 1 and len(history):
                scores = penalized(scores, history, config.repetition_penalty)
                _check_range(f"repetition_penalty={config.repetition_penalty!r}", scores, logits, "1")
            if config.presence_penalty or config.frequency_penalty:
                scores = counted(scores, history[prompt_tokens:], config.presence_penalty, config.frequency_penalty)
                _check_range("presence_penalty or frequency_penalty", scores, logits, "0")
        return scores

    def _candidates(self, ids: Ids, scores: Scores) -> tuple[Ids, Scores]:
        """Returns those of the ids ``[C]``, ascending, and of their scores ``[C]``, that can be drawn."""
        config = self._config
        scores = _divided(scores, config.temperature)
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
        """Draws an index of scores ``[C]`` by inversion: the first with a cumulative probability above a number."""
        cumulative = np.exp((scores - scores.max()).astype(np.float64)).cumsum()
        number = (int(self._bits.random_raw()) >> 11) * _UNIT  # in [0, 1)
        # The product can round up to the total; then the last token with any probability is drawn.
        index = np.searchsorted(cumulative, number * cumulative[-1], side="right")
        return int(min(index, np.searchsorted(cumulative, cumulative[-1])))


def _allowed(scores: Scores, allowed: Mask | None) -> tuple[Ids, Scores]:
    """Returns the ids ``[C]``, ascending, and the scores ``[C]`` of the tokens that a mask ``[V]`` allows."""
    if allowed is None:
        return np.arange(scores.shape[0]), scores
    ids = np.flatnonzero(allowed)
    if not ids.size:
        raise InputError("no token may be chosen: the mask forbids all of them; allow at least one")
    return ids, scores[ids]


def _check_range(setting: str, scores: Scores, logits: np.ndarray, neutral: str) -> None:
    if not np.isfinite(scores).all():
        token = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ConfigError(
            f"{setting} takes the logit {logits[token]!s} of token {token} out of the range of f32: give a value "
            f"nearer to {neutral}"
        )


def _divided(scores: Scores, temperature: float) -> Scores:
    """Divides by the temperature.

    If that overflows, after moving the highest score to 0, which does not change the odds.
    """
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
