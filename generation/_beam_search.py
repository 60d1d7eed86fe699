"""Beam search of one answer, step for step that of transformers 5.23 (``GenerationMixin._beam_search``).

Axes: N beams, C candidates (2 N, or more if several tokens end an answer), V vocabulary. Arithmetic is float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from generation._answer_rules import AnswerRules, AnswerScores
from lang_core import VerificationError

_NEVER: Final = np.float32(-1.0e9)  # score of what is not to be chosen


class BeamRows(Protocol):
    """N rows of caches of one model."""

    def step(self, tokens: Sequence[int], parents: Sequence[int]) -> np.ndarray:
        """Appends a token to each row and returns the logits f32 [N, V] after them.

        Args:
            tokens: of the rows.
            parents: number of the row that each row goes on from.
        """
        ...


@dataclass(frozen=True, slots=True)
class BeamAnswer:
    """Answer that beam search found.

    Attributes:
        tokens: its tokens, without the decoder's first one.
        score: sum of log-probabilities, divided by a power of the number of tokens.
    """

    tokens: tuple[int, ...]
    score: float


_Beam = tuple[int, ...]


def beam_search(rows: BeamRows, rules: AnswerRules, scores: AnswerScores, limit: int) -> BeamAnswer:
    """Returns the best answer.

    Args:
        rows: empty rows of the model, as many as beams.
        rules: rules of the answer.
        scores: scores under the rules.
        limit: greatest number of the decoder's tokens, 2 at least.

    Raises:
        VerificationError: logits are NaN.
    """
    count, ends = rules.beams, frozenset(rules.ends)
    kept = max(2, 1 + len(ends)) * count
    running: list[_Beam] = [(rules.start,)] * count
    running_scores = np.full(count, _NEVER, np.float32)
    running_scores[0] = 0
    done: list[tuple[np.float32, bool, _Beam]] = [(_NEVER, False, (rules.start,))] * count
    parents, improvable = list(range(count)), True
    for length in range(1, limit):
        logits = rows.step([beam[-1] for beam in running], parents)
        if np.isnan(logits).any():
            raise VerificationError("logits of an answer are NaN: look for such weights in the checkpoint")
        totals = np.stack([scores(_log_softmax(row), beam) for row, beam in zip(logits, running, strict=True)])
        flat = (totals + running_scores[:, None]).reshape(-1)
        order = np.argsort(-flat, kind="stable")[:kept]
        places = [divmod(int(place), totals.shape[1]) for place in order]
        candidates = [(*running[beam], token) for beam, token in places]
        hits = np.array([token in ends or length + 1 >= limit for _, token in places])
        chosen = flat[order]
        going = chosen + hits * _NEVER
        following = np.argsort(-going, kind="stable")[:count]

        finished = hits & (np.arange(len(places)) < count)
        penalized = chosen / np.float32(length**rules.length_penalty)
        full = rules.early_stopping is True and all(over for _, over, _ in done)
        penalized = penalized + np.float32(full) * _NEVER + np.float32(not improvable) * _NEVER + ~finished * _NEVER
        merged = [*done, *zip(penalized.astype(np.float32), map(bool, finished), candidates, strict=True)]
        best = np.argsort([-score for score, _, _ in merged], kind="stable")[:count]
        done = [merged[int(index)] for index in best]

        running, running_scores = [candidates[int(i)] for i in following], going[following].astype(np.float32)
        parents = [places[int(i)][0] for i in following]
        improvable = improvable and _improvable(rules, running_scores, done, length, limit)
        open_beam = not (rules.early_stopping is True and all(over for _, over, _ in done))
        if not (improvable and open_beam) or hits.all():
            break
    score, _, beam = done[0]
    return BeamAnswer(beam[1:], float(score))


def _improvable(
    rules: AnswerRules,
    running_scores: np.ndarray,
    done: Sequence[tuple[np.float32, bool, _Beam]],
    length: int,
    limit: int,
) -> bool:
    """Returns whether a beam may still become better than the worst answer."""
    longest = limit - 1 if rules.early_stopping == "never" and rules.length_penalty > 0 else length
    possible = running_scores[0] / np.float32(longest**rules.length_penalty)
    worst = min(score for score, _, _ in done)
    return any(possible > (worst if over else _NEVER) for _, over, _ in done)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float32) - logits.max()
    return (shifted - np.log(np.exp(shifted).sum())).astype(np.float32)
