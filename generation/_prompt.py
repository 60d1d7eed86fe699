"""Feeds a prompt to the caches piece by piece; pieces that an earlier prompt left there are not run again."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from generation._prediction import Prediction
from lang_core import InputError


class CachedModel(Protocol):
    """Causal language model that keeps keys and values of what it has seen. Batch 1.

    Attributes:
        chunk: number of tokens that one call of ``prefill`` takes.
        capacity: number of positions in the caches.
        recurrent: whether a layer has a state that every token changes for good, so that no token may be fed twice.
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


class RevertibleModel(CachedModel, Protocol):
    """Model whose last tokens can be taken back: by going on from an earlier position, and a copy of its states."""

    def keep_states(self) -> None:
        """Keeps a copy of the states, in place of an earlier copy; asked of recurrent models only."""
        ...

    def restore_states(self) -> None:
        """Makes the kept copy the states; there is none afterwards."""
        ...


@runtime_checkable
class LengthDependentModel(Protocol):
    """Model whose RoPE may depend on the length of the sequence."""

    def begin(self, length: int) -> None:
        """Says how many tokens the sequence has whose tokens are appended next."""
        ...

    def outgrown(self, length: int) -> bool:
        """Returns whether a sequence of so many tokens needs other keys than those in the caches, for all tokens."""
        ...


class PromptMemory(Protocol):
    """Record of what a model's caches hold of earlier prompts, in pieces of ``chunk`` tokens that were run whole."""

    def restore(self, token_ids: Sequence[int]) -> int:
        """Restores the caches for as many of the first of these tokens as possible.

        Returns:
            Their number, a multiple of ``chunk``; 0 where nothing fits, with empty states.
        """
        ...

    def keep(self, token_ids: Sequence[int]) -> None:
        """Records that the caches now hold exactly these tokens, a multiple of ``chunk``."""
        ...


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Returns how many tokens two sequences have in common at their beginnings."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(a), len(b)))


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


def run_prompt(model: CachedModel, prompt: Sequence[int], memory: PromptMemory | None = None) -> Prediction:
    """Fills the caches with a prompt, piece by piece, and returns the prediction after it.

    Pieces begin at multiples of ``chunk``, whatever the prompt's length, and the last one is padded on the right.
    Where its padding would not fit into the caches, it begins early enough that it does: the tokens that it repeats
    write what the caches already hold. A recurrent model decodes its tokens one by one instead.

    What is taken from the memory was made by the same calls, so every bit is as without it. The last piece is always
    run, for the prediction. (If it begins early, it repeats tokens before itself; it overwrites them with what it would
    have written without the memory, because everything before these is unchanged.)

    A model whose RoPE depends on the length gets that of the whole prompt first.

    Args:
        model: model.
        prompt: at least one token.
        memory: record of what the caches hold; None where they are empty.
    """
    if isinstance(model, LengthDependentModel):
        model.begin(len(prompt))
    last = (len(prompt) - 1) // model.chunk * model.chunk
    kept = memory.restore(prompt[:last]) if memory else 0
    prediction: Prediction | None = None
    for start in range(kept, len(prompt), model.chunk):
        if memory and start == last:
            memory.keep(prompt[:last])
        prediction = _run_piece(model, prompt, start)
    assert prediction is not None
    return prediction


def run_token(model: CachedModel, history: Sequence[int], memory: PromptMemory | None = None) -> Prediction:
    """Appends the last of a sequence's tokens and returns the prediction after it.

    If the sequence has outgrown the keys in the caches (longrope at its original length), all tokens are run anew, as a
    prompt: what the memory has of the shorter sequence is of no use.
    """
    if isinstance(model, LengthDependentModel) and model.outgrown(len(history)):
        return run_prompt(model, history, memory)
    return model.decode(history[-1], len(history) - 1)


def _run_piece(model: CachedModel, prompt: Sequence[int], start: int) -> Prediction:
    if start + model.chunk > model.capacity:
        if model.recurrent:
            return [model.decode(prompt[position], position) for position in range(start, len(prompt))][-1]
        start = model.capacity - model.chunk
    piece = prompt[start : start + model.chunk]
    padded = np.zeros((1, model.chunk), np.int32)
    padded[0, : len(piece)] = piece
    return model.prefill(padded, start, len(piece) - 1)
