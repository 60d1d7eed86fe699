"""Drafters: cheap guesses of the tokens that may follow."""

from collections.abc import Sequence
from typing import Final, Protocol

from generation._prediction import Prediction
from generation._prompt import PromptMemory, RevertibleModel, common_length, run_prompt
from lang_core import ConfigError


class Drafter(Protocol):
    """Proposes tokens that may follow. It may be wrong: the model verifies them."""

    def propose(self, history: Sequence[int], count: int) -> Sequence[int]:
        """Returns up to ``count`` (at least 1) tokens that may follow ``history``; none without a guess."""
        ...


class PromptLookup:
    """Finds the last tokens earlier in the text, and proposes what followed there. For one answer.

    The longest run of tokens is tried first, and of its places the latest one. Where the continuation reaches the end
    of the text it continues with itself: a text that repeats is expected to go on repeating.

    >>> PromptLookup(2).propose([7, 1, 2, 3, 4, 1, 2], 3)
    [3, 4, 1]
    >>> PromptLookup(2).propose([1, 2, 1, 2], 5)
    [1, 2, 1, 2, 1]
    """

    def __init__(self, longest: int = 3) -> None:
        """Tries the last ``longest`` tokens, then fewer, but not a single one unless ``longest`` is 1.

        Raises:
            ConfigError: ``longest`` is below 1.
        """
        if longest < 1:
            raise ConfigError(f"prompt lookup: the tokens to look for: expected at least 1; found {longest}")
        self._sizes: Final = range(longest, min(longest, 2) - 1, -1)
        self._follows: Final[dict[tuple[int, ...], int]] = {}
        self._known = 0  # runs that end before this place are in _follows

    def propose(self, history: Sequence[int], count: int) -> list[int]:
        """Returns what followed the last tokens earlier; ``history`` must extend that of the last call."""
        for end in range(max(self._known, 1), len(history)):
            for size in self._sizes:
                if size <= end:
                    self._follows[tuple(history[end - size : end])] = end
        self._known = len(history)
        for size in self._sizes:
            place = self._follows.get(tuple(history[-size:])) if size <= len(history) else None
            if place is not None:
                return _read_on(history, place, count)
        return []


def _read_on(history: Sequence[int], place: int, count: int) -> list[int]:
    tokens: list[int] = []
    for at in range(place, place + count):
        tokens.append(history[at] if at < len(history) else tokens[at - len(history)])
    return tokens


class DraftingModel(Protocol):
    """Model with a multi-token prediction head.

    Attributes:
        capacity: number of positions in the caches.
    """

    capacity: int

    def draft(self, token_id: int, position: int) -> Prediction:
        """Returns the head's prediction after a token at ``position``, 1 or more, that the model has not been fed."""
        ...


class PredictionHead:
    """Proposes what the model's own multi-token prediction head finds likeliest; further tokens from its own guesses.

    Attributes:
        calls: number of calls of the head.
    """

    def __init__(self, model: DraftingModel) -> None:
        """Drafts with the model that verifies."""
        self._model: Final = model
        self.calls = 0

    def propose(self, history: Sequence[int], count: int) -> list[int]:
        """Returns the likeliest tokens, as many as the caches have room for; none after a single token."""
        position = len(history) - 1
        count = min(count, self._model.capacity - position)
        tokens: list[int] = []
        token = history[-1]
        while position > 0 and len(tokens) < count:
            self.calls += 1
            token = self._model.draft(token, position).likeliest()
            if token < 0:  # its logits are not finite
                break
            tokens.append(token)
            position += 1
        return tokens


class DraftModel:
    """Proposes the likeliest tokens of a smaller model with the same vocabulary. For one answer."""

    def __init__(self, model: RevertibleModel, memory: PromptMemory | None = None) -> None:
        """Drafts with a model.

        Args:
            model: smaller model, whose caches are filled. Rejected tokens are undone by going on from an earlier
                position, or from a copy of its states.
            memory: record of what its caches hold of earlier prompts; None where they are empty.
        """
        self._model: Final = model
        self._memory: Final = memory
        self._seen: list[int] = []
        self._kept_at = 0  # tokens in the kept copy of the states

    def propose(self, history: Sequence[int], count: int) -> list[int]:
        """Returns the likeliest tokens, as many as the caches have room for."""
        count = min(count, self._model.capacity - len(history) + 1)  # the last one is not fed
        if count < 1:
            return []
        tokens: list[int] = []
        prediction = self._read(history)
        if self._model.recurrent and count > 1:
            self._model.keep_states()
            self._kept_at = len(history)
        while (likeliest := prediction.likeliest()) >= 0:  # -1 if its logits are not finite: there is no guess
            tokens.append(likeliest)
            if len(tokens) == count:
                break
            prediction = self._model.decode(likeliest, len(self._seen))
            self._seen.append(likeliest)
        return tokens

    def _read(self, history: Sequence[int]) -> Prediction:
        """Feeds the tokens that the caches lack, and returns the prediction after the last one."""
        if not self._seen:
            self._seen = list(history)
            return run_prompt(self._model, history, self._memory)
        known = min(common_length(self._seen, history), len(history) - 1)
        if self._model.recurrent and known < len(self._seen):
            self._model.restore_states()
            known = self._kept_at
        self._seen = list(history)
        return [self._model.decode(history[position], position) for position in range(known, len(history))][-1]
