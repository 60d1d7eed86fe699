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
    highest = logits.max()
    rest = float(np.log(np.exp(logits - highest).sum(dtype=np.float64)))

    def logprob(index: int) -> float:
        return float(logits[index]) - float(highest) - rest

    order = _largest(logits, min(most, logits.size))
    return TokenEvent(token_id, logprob(token_id), tuple((int(i), logprob(i)) for i in order))


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Returns the indices of the largest values, largest first, the lowest of equal ones first."""
    if count == 0:
        return np.zeros(0, np.int64)
    edge = np.partition(values, -count)[-count]
    candidates = np.flatnonzero(values >= edge)
    return candidates[np.argsort(-values[candidates], kind="stable")][:count]
