"""Log probabilities of tokens."""

import numpy as np

from generation.engine._request import TokenEvent


def token_event(token_id: int, logits: np.ndarray, most: int) -> TokenEvent:
    """Returns a token with its log probability and the ``most`` likeliest tokens, the lowest ids first among equals.

    Args:
        token_id: the token.
        logits: f32 [V], as the model gave them.
        most: number of alternatives.
    """
    logprobs = log_softmax(logits)
    order = _largest(logprobs, min(most, logprobs.size))
    return TokenEvent(token_id, float(logprobs[token_id]), tuple((int(i), float(logprobs[i])) for i in order))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the log probabilities f32 [V] of logits f32 [V]; the sum is f64."""
    moved = logits - logits.max()
    return moved - np.float32(np.log(np.exp(moved).sum(dtype=np.float64)))


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Returns the indices of the largest values, largest first, the lowest of equal ones first."""
    if count == 0:
        return np.zeros(0, np.int64)
    edge = np.partition(values, -count)[-count]
    candidates = np.flatnonzero(values >= edge)
    return candidates[np.argsort(-values[candidates], kind="stable")][:count]
