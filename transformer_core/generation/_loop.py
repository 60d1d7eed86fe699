"""The loop of generation: a prompt in, tokens out, on whatever runs the model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from lang_core import InputError
from transformer_core.generation._sampler import Sampler
from transformer_core.generation._stop import StopRule


class CachedModel(Protocol):
    """A causal language model that keeps keys and values of what it has seen. Batch 1.

    Attributes:
        chunk: how many tokens one call of ``prefill`` takes.
        capacity: how many positions the caches hold.
        recurrent: whether some layer has a state that every token changes for good: no token is given twice then.
    """

    chunk: int
    capacity: int
    recurrent: bool

    def prefill(self, token_ids: np.ndarray, position: int, last: int) -> np.ndarray:
        """Appends ``token_ids`` i32 [1, chunk] at ``position``; the logits f32 [V] of row ``last``."""
        ...

    def decode(self, token_id: int, position: int) -> np.ndarray:
        """Appends one token at ``position``; its logits f32 [V]."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """A new token.

    Attributes:
        token_id: the token.
        logits: f32 [V], from which it was chosen.
        ended: why generation ends with it; None where it goes on.
    """

    token_id: int
    logits: np.ndarray
    ended: Literal["eos", "length"] | None


def generate(model: CachedModel, prompt: Sequence[int], sampler: Sampler, stop: StopRule) -> Iterator[Step]:
    """Yields new tokens until the rule says stop.

    Args:
        model: with empty caches; its caches are filled.
        prompt: at least one token.
        sampler: chooses.
        stop: ends.

    Raises:
        InputError: the prompt is empty, or it and the new tokens do not fit into the caches.
    """
    check_room(prompt, stop.max_new_tokens, model.capacity)
    history = list(prompt)
    logits = run_prompt(model, prompt)
    for count in range(1, stop.max_new_tokens + 1):
        token_id = sampler(logits, history)
        history.append(token_id)
        ended = stop.reason(token_id, count)
        yield Step(token_id, logits, ended)
        if ended:
            return
        logits = model.decode(token_id, len(history) - 1)


def check_room(prompt: Sequence[int], new_tokens: int, capacity: int, which: str = "prompt") -> None:
    """Checks that a prompt and what follows fit into caches of so many positions.

    Raises:
        InputError: they do not, or the prompt is empty; ``which`` says which one.
    """
    wanted = len(prompt) + new_tokens - 1  # the last new token is never fed back
    if not prompt:
        raise InputError(f"the {which} has no token: give --prompt or --token_ids at least one")
    if wanted > capacity:
        raise InputError(
            f"a {which} of {len(prompt)} tokens and {new_tokens} new ones need {wanted} positions, the bundle's caches "
            f"hold {capacity}: ask for fewer, or export with --max_sequence={wanted} or more"
        )


def run_prompt(model: CachedModel, prompt: Sequence[int]) -> np.ndarray:
    """Fills the caches with a prompt, piece by piece; the logits f32 [V] of its last token.

    A prompt shorter than a chunk is padded. The last piece of a longer one starts so early that it is full: the
    tokens that it repeats give the caches what they have already. Where the model is recurrent it is padded instead,
    or decoded token by token if the padding would not fit into the caches.
    """
    chunk, count = model.chunk, len(prompt)
    logits = np.empty(0, np.float32)
    if not model.recurrent:
        starts = (*range(0, count - chunk, chunk), max(count - chunk, 0))
    else:
        starts = range(0, min(count, model.capacity - chunk + 1), chunk)
    for start in starts:
        piece = prompt[start : start + chunk]
        padded = np.zeros((1, chunk), np.int32)
        padded[0, : len(piece)] = piece
        logits = model.prefill(padded, start, len(piece) - 1)
    for position in range(starts[-1] + chunk, count):
        logits = model.decode(prompt[position], position)
    return logits
