"""Log-probabilities of the tokens of a text."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lang_core import InputError
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.runners import RopeLengths


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probabilities of a sequence of T tokens.

    Attributes:
        token_ids: the tokens.
        log_probabilities: natural logarithms f64 [T - 1]; entry i is of token i + 1, given those before it.
    """

    token_ids: tuple[int, ...]
    log_probabilities: np.ndarray

    @property
    def total(self) -> float:
        """Log-probability of all tokens after the first."""
        return float(self.log_probabilities.sum())

    @property
    def perplexity(self) -> float:
        """Exponential of the mean negative log-probability."""
        return math.exp(-float(self.log_probabilities.mean()))


def scores(token_ids: Sequence[int], logits: Iterator[np.ndarray]) -> Scores:
    """Returns the scores of tokens.

    Args:
        token_ids: T tokens.
        logits: f32 [V] after each token; the last one is not needed.

    Raises:
        InputError: there are fewer than two tokens.
    """
    _check_two(token_ids)
    values = [_log_probability(row, token) for row, token in zip(logits, token_ids[1:], strict=False)]
    return Scores(tuple(token_ids), np.array(values))


def check_scored(token_ids: Sequence[int], capacity: int) -> None:
    """Checks that tokens can be scored with caches of so many positions.

    Raises:
        InputError: there are fewer than two, or too many.
    """
    _check_two(token_ids)
    if len(token_ids) > capacity:
        raise InputError(
            f"{len(token_ids)} tokens, and the bundle's caches hold {capacity} positions: shorten the text, or "
            f"export with max_sequence={len(token_ids)} or more"
        )


def _check_two(token_ids: Sequence[int]) -> None:
    if len(token_ids) < 2:
        raise InputError(f"scores need 2 tokens or more, found {len(token_ids)}: each is scored given those before it")


def forward_logits(bundle: Bundle, session: Session, token_ids: Sequence[int]) -> Iterator[np.ndarray]:
    """Yields the logits after each token from a bundle that takes whole sequences.

    Raises:
        InputError: the bundle does not return logits, or takes fewer tokens; or RoPE depends on the length, and texts
            of so few tokens have other frequencies than padded ones.
    """
    forward = bundle.entry_point("forward")
    results = [result.name for result in forward.results]
    if [argument.name for argument in forward.arguments] != ["token_ids"] or "logits" not in results:
        raise InputError(f"{bundle.path} gives {', '.join(results)}: scores need the logits of a causal language model")
    batch, length = forward.arguments[0].spec.shape
    if len(token_ids) > length:
        raise InputError(
            f"{len(token_ids)} tokens, and the bundle takes {length}: shorten the text, or export with "
            f"sequence={len(token_ids)} or more"
        )
    lengths = RopeLengths(bundle.config.model)
    if lengths.regime_of(len(token_ids)) != lengths.regime_of(length):
        raise InputError(
            f"{len(token_ids)} tokens, and RoPE of {bundle.path} has the frequencies of {length} tokens: export with "
            f"entry_points=prefill,decode,verify, which takes texts of any length, or with sequence={len(token_ids)}"
        )
    padded = np.zeros((batch, length), np.int32)
    padded[0, : len(token_ids)] = token_ids
    logits = session.function("forward")(padded)[results.index("logits")].numpy()
    yield from logits[0, : len(token_ids)]


def _log_probability(logits: np.ndarray, token: int) -> float:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max()
    return float(shifted[token] - np.log(np.exp(shifted).sum()))
