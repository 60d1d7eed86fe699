"""Drafters: cheap guesses of the tokens that may follow."""

from collections.abc import Sequence
from typing import Final, Protocol

from generation._prediction import Prediction
from lang_core import ConfigError


class Drafter(Protocol):
    """Proposes tokens that may follow. It may be wrong: the model verifies them."""

    def propose(self, history: Sequence[int], count: int) -> Sequence[int]:
        """Returns up to ``count`` (at least 1) tokens that may follow ``history``; none without a guess."""
        ...


class PromptLookup:
    """Finds the last tokens earlier in the text, and proposes the tokens that followed there. For one answer.

    The longest run of tokens is tried first, and of its places the latest one. If the continuation reaches the end of
    the text, it repeats: a repetitive text is expected to go on repeating.

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
        """Returns the tokens that followed the last tokens earlier; ``history`` must extend that of the last call."""
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
    """Proposes the likeliest token of the model's multi-token prediction head; further ones from its own guesses."""

    def __init__(self, model: DraftingModel) -> None:
        """Drafts with the model that verifies."""
        self._model: Final = model

    def propose(self, history: Sequence[int], count: int) -> list[int]:
        """Returns the likeliest tokens, as many as the caches have room for; none after a single token."""
        position = len(history) - 1
        count = min(count, self._model.capacity - position)
        tokens: list[int] = []
        token = history[-1]
        while position > 0 and len(tokens) < count:
            token = self._model.draft(token, position).likeliest()
            if token < 0:  # its logits are not finite
                break
            tokens.append(token)
            position += 1
        return tokens
