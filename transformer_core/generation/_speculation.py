"""Speculative generation: drafts that the model verifies give several tokens per call."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from lang_core import ConfigError
from transformer_core.generation._drafts import Drafter
from transformer_core.generation._prediction import Prediction
from transformer_core.generation._prompt import CachedModel


class ScoringModel(CachedModel, Protocol):
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
    differently from ``decode``: docs/speculation.md.) Rejected tokens are undone by going on from an earlier position.

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
            ConfigError: the model has a recurrent state, in which tokens cannot be undone; or ``most`` is out of range.
        """
        if model.recurrent:
            raise ConfigError(
                "a model with a state (Gated DeltaNet) cannot take tokens back that were turned down: generate without "
                "speculation"
            )
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
        self.drafted = 0
        self.accepted = 0

    def advance(self, history: Sequence[int], remaining: int) -> tuple[list[Prediction], list[int]]:
        """Feeds the last token, and a draft after it where there is one.

        Args:
            history: all tokens; all but the last one are in the caches.
            remaining: number of tokens that are still wanted, at least 1.

        Returns:
            Predictions after the last token and after each token of the draft, and the draft.
        """
        model, position = self._model, len(history) - 1
        wanted = min(self._most, remaining - 1)
        fits = position + model.score_tokens <= model.capacity
        draft = list(self._drafter.propose(history, wanted))[:wanted] if wanted and fits else []
        if not draft:
            return [model.decode(history[-1], position)], []
        tokens = np.zeros((1, model.score_tokens), np.int32)
        tokens[0, : 1 + len(draft)] = [history[-1], *draft]
        rows = model.score(tokens, position, len(draft))
        self.drafted += len(draft)
        return list(rows[: 1 + len(draft)]), draft
