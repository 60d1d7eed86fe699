"""Several tokens from one call: drafts that the model verifies."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from lang_core import ConfigError
from transformer_core.generation._drafts import Drafter
from transformer_core.generation._prediction import Prediction
from transformer_core.generation._prompt import CachedModel


class ScoringModel(CachedModel, Protocol):
    """A model that can verify drafts.

    Attributes:
        score_tokens: how many tokens one call of ``score`` takes, T'.
    """

    score_tokens: int

    def score(self, token_ids: np.ndarray, position: int, last: int) -> Sequence[Prediction]:
        """Appends ``token_ids`` i32 [1, T'] at ``position``, of which those to row ``last`` count.

        Returns:
            T', of what comes after every row.
        """
        ...


class Speculation:
    """How many drafts there were, and what became of them.

    A draft is fed together with the token before it, and the model's logits say of every one of its tokens whether it
    is what would have been chosen. Whatever the sampler, the tokens are those without drafts: each is chosen from the
    model's own logits after the tokens before it, with the number of the random stream that is its turn. (``score`` may
    round otherwise than ``decode``: docs/speculation.md.) Tokens that are turned down are taken back by going on from
    an earlier position.

    Attributes:
        drafted: how many tokens were proposed.
        accepted: how many of them were right.
    """

    def __init__(self, model: ScoringModel, drafter: Drafter, most: int | None = None) -> None:
        """Speculates with a model.

        Args:
            model: verifies.
            drafter: proposes.
            most: how many tokens at once, at most; as many as a call takes where None.

        Raises:
            ConfigError: the model has a state, from which no token can be taken back; or ``most`` is out of range.
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
                f"tokens and the first one is no draft: ask for fewer, or export with --score_tokens={max(most, 1) + 1}"
            )
        if takes < 1:
            raise ConfigError("score takes 1 token a call, which leaves none for a draft: export with --score_tokens=8")
        self._model: Final = model
        self._drafter: Final = drafter
        self._most: Final = takes if most is None else most
        self.drafted = 0
        self.accepted = 0

    def advance(self, history: Sequence[int], remaining: int) -> tuple[list[Prediction], list[int]]:
        """Feeds the last token, and a draft behind it where there is one.

        Args:
            history: all tokens; all but the last one are in the caches.
            remaining: how many tokens are still wanted, 1 or more.

        Returns:
            What comes after the last token and after each of the draft's, and the draft.
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
