"""Steps from logits to candidates, as in transformers 5.23 (`generation/logits_process.py`).

The penalties of presence and frequency, which transformers lacks, are those of OpenAI's API, in the order of vLLM.

Each filter takes the scores ``[C]`` float32 of the candidates and gives a mask ``[C]`` of those to keep. transformers
gives a removed token the score -inf, that is, probability 0; leaving it out of C is the same, and less work.
Arithmetic is float32 with thresholds rounded to float32, as there, so that the edges of the kept sets agree.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

_MANTISSA_BITS: Final = 23  # of an f32
_SAFELY: Final = 1 - 1e-5  # leaves room for the rounding of sums to f32

Scores = np.ndarray[tuple[int], np.dtype[np.float32]]
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


def penalized(logits: Scores, history: Sequence[int] | np.ndarray, penalty: float) -> Scores:
    """Returns logits ``[V]`` with those of tokens in the history made less likely (more, if penalty < 1).

    A token counts once, however often it is in the history. Ids of V or more, which a tokenizer larger than the model
    can produce, cannot be generated and lack a logit: they are skipped.
    """
    seen = np.unique(np.asarray(history, np.int64))
    seen = seen[seen < logits.shape[0]]
    factor = np.float32(penalty)
    scores = logits.copy()
    scores[seen] = np.where(logits[seen] < 0, logits[seen] * factor, logits[seen] / factor)
    return scores


def biased(logits: Scores, bias: Mapping[int, float]) -> Scores:
    """Returns logits ``[V]`` with numbers added to those of some tokens."""
    scores = logits.copy()
    scores[list(bias)] += np.fromiter(bias.values(), np.float32, len(bias))
    return scores


def counted(logits: Scores, generated: Sequence[int] | np.ndarray, presence: float, frequency: float) -> Scores:
    """Returns logits ``[V]`` less ``frequency`` for each time that a token was generated, and ``presence`` once.

    Ids of V or more lack a logit: they are skipped.
    """
    seen, counts = np.unique(np.asarray(generated, np.int64), return_counts=True)
    inside = seen < logits.shape[0]
    seen, counts = seen[inside], counts[inside].astype(np.float32)
    scores = logits.copy()
    scores[seen] -= np.float32(frequency) * counts
    scores[seen] -= np.float32(presence)
    return scores


def softmax(scores: Scores) -> Scores:
    """Returns the probabilities ``[C]`` of scores ``[C]``."""
    exps = np.exp(scores - scores.max())
    return exps / exps.sum()


def keep_top_k(scores: Scores, k: int) -> Mask:
    """Keeps the k highest scores, and every score equal to the lowest of them."""
    k = min(k, scores.shape[0])
    return scores >= np.partition(scores, -k)[-k]


def keep_top_p(scores: Scores, p: float) -> Mask:
    """Keeps the smallest set of most likely tokens with a total probability of p, and always one token.

    Of equal scores at the edge those of the lowest ids are kept, as in a greedy choice; PyTorch may keep any of them,
    because its sort is not stable.
    """
    probabilities = softmax(scores)
    share, below = _unlikely(probabilities, 1 - p)
    likely = np.flatnonzero(probabilities >= share)
    order = likely[np.argsort(-scores[likely], kind="stable")[::-1]]
    # float64 sums, each rounded to float32: what PyTorch's cumsum does on a CPU
    cumulative = (below + probabilities[order].cumsum(dtype=np.float64)).astype(np.float32)
    kept = cumulative > np.float32(1 - p)
    kept[-1] = True
    mask = np.zeros(scores.shape, np.bool_)
    mask[order[kept]] = True
    return mask


def _unlikely(probabilities: Scores, rest: float) -> tuple[float, np.float64]:
    """Returns a share, and the sum of the probabilities below it, of which none is among the likeliest 1 - ``rest``.

    These tokens do not need sorting. The share is a power of two, the greatest that will do.
    """
    exponents = probabilities.view(np.int32) >> _MANTISSA_BITS
    sums = np.bincount(exponents, weights=probabilities).cumsum()  # of all probabilities below the next power of two
    count = min(int(np.searchsorted(sums, rest * _SAFELY)), int(exponents.max()))
    share = float(np.int32(count << _MANTISSA_BITS).view(np.float32))
    return share, probabilities[probabilities < share].sum(dtype=np.float64)


def keep_min_p(scores: Scores, p: float) -> Mask:
    """Keeps the tokens with at least p times the highest probability."""
    probabilities = softmax(scores)
    return probabilities >= np.float32(p) * probabilities.max()
