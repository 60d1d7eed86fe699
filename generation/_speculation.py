"""Speculative generation: drafts that the model verifies give several tokens per call."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from generation._drafts import Drafter, PredictionHead
from generation._prediction import Prediction
from generation._prompt import RevertibleModel
from lang_core import ConfigError


class ScoringModel(RevertibleModel, Protocol):
    """Model that can verify drafts.

    Attributes:
        score_tokens: number of tokens that one call of ``score`` takes, T'.
    """

    score_tokens: int

    def score(self, token_ids: np.ndarray, position: int, last: int) -> Sequence[Prediction]:
        """Appends ``token_ids`` i32 [1, T'] at ``position``, of which those up to row ``last`` count.

        Returns:
            T' predictions, after every row.
        """
        ...


class Speculation:
    """Verifies drafts, and counts them.

    A draft is fed together with the token before it, and the model's logits tell for each of its tokens whether it is
    the one that would have been chosen. With any sampler the tokens are those without drafts: each is chosen from the
    model's own logits after the tokens before it, with its own number of the random stream. (``score`` may round
    differently from ``decode``: docs/speculation.md.)

    Rejected tokens are undone by going on from an earlier position. States cannot go back: a copy of them is kept
    before a draft is fed and put back where a token of it was rejected. The accepted ones are then fed again, at the
    head of the next call: they cost rows of it and no call of their own.

    Attributes:
        drafted: number of proposed tokens.
        accepted: number of accepted tokens.
    """

    def __init__(self, model: ScoringModel, drafter: Drafter, most: int | None = None) -> None:
        """Speculates with a model.

        Args:
            model: model that verifies.
            drafter: proposes tokens.
            most: largest number of tokens of a draft; as many as a call takes if None.

        Raises:
            ConfigError: ``most`` is out of range.
        """
        takes = model.score_tokens - 1
        if most is not None and not 1 <= most <= takes:
            raise ConfigError(
                f"drafts of up to {most} tokens: expected 1 to {takes}, for a call of score takes {model.score_tokens} "
                f"tokens and the first one is no draft: ask for fewer, or export with score_tokens={max(most, 1) + 1}"
            )
        if takes < 1:
            raise ConfigError("score takes 1 token a call, which leaves none for a draft: export with score_tokens=8")
        self._model: Final = model
        self._drafter: Final = drafter
        self._most: Final = takes if most is None else most
        self._kept_at = 0  # tokens in the kept copy of the states
        self._fed = 0  # tokens in the states
        self.drafted = 0
        self.accepted = 0

    @property
    def head_calls(self) -> int:
        """Calls of the model's multi-token prediction head."""
        return self._drafter.calls if isinstance(self._drafter, PredictionHead) else 0

    def advance(self, history: Sequence[int], remaining: int) -> tuple[list[Prediction], list[int]]:
        """Feeds the last token, and a draft after it where there is one.

        Args:
            history: all tokens; all but the last one are in the caches.
            remaining: number of tokens that are still wanted, at least 1.

        Returns:
            Predictions after the last token and after each token of the draft, and the draft.
        """
        model, begin = self._model, self._begin(len(history) - 1)
        known = list(history[begin:])
        wanted = min(self._most, remaining - 1, model.score_tokens - len(known))
        fits = begin + model.score_tokens <= model.capacity
        draft = list(self._drafter.propose(history, wanted))[:wanted] if wanted > 0 and fits else []
        if fits and len(known) + len(draft) > 1:
            return self._scored(begin, known, draft), draft
        self._fed = len(history)
        return [[model.decode(token, begin + index) for index, token in enumerate(known)][-1]], []

    def _begin(self, position: int) -> int:
        """Returns the position to go on from: ``position``, or an earlier one of states that were put back."""
        if not self._model.recurrent or self._fed <= position:
            return position
        self._model.restore_states()
        return self._kept_at

    def _scored(self, begin: int, known: list[int], draft: list[int]) -> list[Prediction]:
        """Feeds known tokens and a draft, and returns the predictions after the last known one and all of the draft."""
        model, fed = self._model, [*known, *draft]
        if model.recurrent and draft:
            model.keep_states()
            self._kept_at = begin
        tokens = np.zeros((1, model.score_tokens), np.int32)
        tokens[0, : len(fed)] = fed
        rows = model.score(tokens, begin, len(fed) - 1)
        self._fed = begin + len(fed)
        self.drafted += len(draft)
        return list(rows[len(known) - 1 : len(fed)])
