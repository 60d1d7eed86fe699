"""Drafts of running answers: guesses of their next tokens, which one call of the model verifies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from generation import Drafter
from generation.engine._answer import Answer
from generation.engine._guard import GuardedModel, guarded
from generation.engine._slot import Slot
from lang_core import ConfigError


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """Speculation of an engine.

    Attributes:
        begin: returns the drafter of a new answer in a row of the caches, by the row's index; the second argument is
            True if the drafter must not use entries of earlier answers in the row.
        tokens: greatest length of a draft; None for as many as one call of the model verifies.
        rows: answers that may run at once while drafts are made. A draft costs its row a call of its own; without
            drafts one call serves all rows.

    Raises:
        ConfigError: a number is out of its range.
    """

    begin: Callable[[int, bool], Drafter]
    tokens: int | None = None
    rows: int = 1

    def __post_init__(self) -> None:
        for name, value in (("tokens", self.tokens), ("rows", self.rows)):
            if value is not None and value < 1:
                raise ConfigError(f"drafts: {name}={value} is out of range: give at least 1")


class RowDrafts:
    """Drafts of the answers of a model's rows."""

    def __init__(self, model: GuardedModel, drafting: Drafting, *, exact: bool = True) -> None:
        """Begins without an answer.

        Args:
            model: model that verifies.
            drafting: the drafting method.
            exact: whether a model is refused that may round differently when it verifies.

        Raises:
            ConfigError: the model cannot verify drafts, or none so long, or not with the bits of single steps.
        """
        self._model: Final = model
        self._drafting: Final = drafting
        self._most = model.verify_tokens - 1
        self._drafters: Final[dict[int, tuple[Answer, Drafter]]] = {}  # by row; and whose it is
        if self._most < 1:
            raise ConfigError(
                f"drafts: expected a model that verifies 2 or more tokens a call; this one verifies "
                f"{model.verify_tokens}: export one without states with verify_tokens=4"
            )
        if exact and not model.invariant:
            raise ConfigError(
                "drafts: a token's bits depend on the call that computes it in this model, so answers would not be "
                "those without drafts: serve it without drafts, or export it for a device where its bits do not"
            )
        if drafting.tokens is not None:
            if drafting.tokens > self._most:
                raise ConfigError(
                    f"drafts of up to {drafting.tokens} tokens: expected 1 to {self._most}, for a call of the model "
                    f"verifies {model.verify_tokens} and the first one is no draft: ask for fewer, or export with "
                    f"verify_tokens={drafting.tokens + 1}"
                )
            self._most = drafting.tokens

    def propose(self, slots: Sequence[Slot]) -> Sequence[list[int]]:
        """Returns a draft for each row that takes part in a step; empty ones without a guess."""
        if len(slots) > self._drafting.rows:
            return [[]] * len(slots)
        return [self._propose(slot) for slot in slots]

    def _propose(self, slot: Slot) -> list[int]:
        answer = slot.answer
        assert answer
        room = self._model.score_room(slot.row, slot.filled) - 1
        wanted = min(self._most, answer.remaining - 1, room)
        if wanted < 1 or not answer.generated:  # a prompt that is run by steps is known
            return []
        owner, drafter = self._drafters.get(slot.row, (None, None))
        with guarded("draft"):
            if drafter is None or owner is not answer:
                salt = answer.request.cache_salt
                fresh = salt is None or owner is None or owner.request.cache_salt != salt
                drafter = self._drafting.begin(slot.row, fresh)
                self._drafters[slot.row] = answer, drafter
            return list(drafter.propose(answer.tokens.tolist(), wanted))[:wanted]
