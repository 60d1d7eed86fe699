"""A prompt in the caches of a model that runs one sequence."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from generation._prediction import Prediction
from lang_core import InputError


class CachedModel(Protocol):
    """Causal language model with a KV cache. Batch 1.

    Attributes:
        chunk: number of tokens that one call of ``prefill`` takes.
        capacity: number of positions in the caches.
        recurrent: whether a layer has a state that every token changes for good, so that tokens must not be fed twice.
    """

    chunk: int
    capacity: int
    recurrent: bool

    def prefill(self, token_ids: np.ndarray, position: int, last: int) -> Prediction:
        """Appends ``token_ids`` i32 [1, chunk] at ``position``, and returns the prediction after row ``last``."""
        ...

    def decode(self, token_id: int, position: int) -> Prediction:
        """Appends one token at ``position``, and returns the prediction after it."""
        ...


def check_room(prompt: Sequence[int], new_tokens: int, capacity: int, which: str = "prompt") -> None:
    """Checks that a prompt and the new tokens fit into the caches.

    Args:
        prompt: tokens of the prompt.
        new_tokens: largest number of new tokens.
        capacity: number of positions in the caches.
        which: name of the prompt in messages.

    Raises:
        InputError: they do not fit, or the prompt is empty.
    """
    wanted = len(prompt) + new_tokens - 1  # the last new token is never fed back
    if not prompt:
        raise InputError(f"the {which} has no token: give `prompt` or `token_ids` at least one")
    if wanted > capacity:
        raise InputError(
            f"a {which} of {len(prompt)} tokens and {new_tokens} new ones need {wanted} positions, the bundle's caches "
            f"hold {capacity}: ask for fewer, or export with max_sequence={wanted} or more"
        )


def run_prompt(model: CachedModel, prompt: Sequence[int]) -> Prediction:
    """Fills empty caches with a prompt, piece by piece, and returns the prediction after it.

    Pieces begin at multiples of ``chunk``, whatever the prompt's length, and the last one is padded on the right. If
    its padding would not fit into the caches, it begins early enough: the repeated tokens write the same entries again.
    A recurrent model decodes its tokens one by one instead.

    Args:
        model: model.
        prompt: at least one token.
    """
    return [_run_piece(model, prompt, start) for start in range(0, len(prompt), model.chunk)][-1]


def _run_piece(model: CachedModel, prompt: Sequence[int], start: int) -> Prediction:
    if start + model.chunk > model.capacity:
        if model.recurrent:
            return [model.decode(prompt[position], position) for position in range(start, len(prompt))][-1]
        start = model.capacity - model.chunk
    piece = prompt[start : start + model.chunk]
    padded = np.zeros((1, model.chunk), np.int32)
    padded[0, : len(piece)] = piece
    return model.prefill(padded, start, len(piece) - 1)
