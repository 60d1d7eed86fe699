"""Generation for several prompts at once: every row of a batch has its own position, and stops by itself."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from generation._prediction import Prediction
from generation._prompt import check_room
from generation._sampler import Sampler
from generation._step import TokenStep
from generation._stop import StopRule
from lang_core import InputError


class CachedBatch(Protocol):
    """Causal language model that keeps keys and values of B sequences of different lengths.

    Attributes:
        batch: number of sequences, B.
        chunk: number of tokens of each sequence that one call of ``prefill`` takes.
        capacity: number of positions in the caches.
    """

    batch: int
    chunk: int
    capacity: int

    def prefill(self, token_ids: np.ndarray, position: np.ndarray, last: np.ndarray) -> Sequence[Prediction]:
        """Appends rows 0 to ``last`` i32 [B] of ``token_ids`` i32 [B, chunk] at ``position`` i32 [B].

        A sequence whose ``last`` is -1 stays as it is.

        Returns:
            B predictions of the tokens after rows ``last``.
        """
        ...

    def decode(self, token_ids: np.ndarray, position: np.ndarray) -> Sequence[Prediction]:
        """Appends a token i32 [B] to each sequence at ``position`` i32 [B], and returns B predictions."""
        ...


@runtime_checkable
class LengthDependentBatch(Protocol):
    """Batch of a model whose RoPE may depend on the lengths of the sequences."""

    def begin(self, row: int, length: int) -> None:
        """Says how many tokens the sequence of a row has whose tokens are appended next."""
        ...

    def outgrown(self, row: int, length: int) -> bool:
        """Returns whether a row's sequence of so many tokens needs other keys than those in its caches."""
        ...


def generate_batch(
    model: CachedBatch,
    prompts: Sequence[Sequence[int]],
    samplers: Sequence[Sampler],
    stop: StopRule | Sequence[StopRule],
) -> Iterator[tuple[int, TokenStep]]:
    """Returns an iterator of new tokens of all prompts, until its rule has ended each.

    The tokens of a prompt do not depend on the other prompts.

    Args:
        model: model with empty caches, which are filled. Sequences without a prompt are not used.
        prompts: up to B prompts, each of at least one token.
        samplers: one sampler per prompt.
        stop: rule that ends the tokens of every prompt, or a rule for each.

    Returns:
        Pairs: the index of the prompt, and its next token.

    Raises:
        InputError: there is no prompt or there are more than B, or one of them is empty or does not fit into the
            caches with its new tokens; at once, before a token is asked for.
    """
    if not 0 < len(prompts) <= model.batch:
        raise InputError(
            f"{len(prompts)} prompts, and the bundle takes 1 to {model.batch} at once: give as many, or export with "
            f"batch={max(1, len(prompts))}"
        )
    stops = [stop] * len(prompts) if isinstance(stop, StopRule) else stop
    for number, (prompt, rule) in enumerate(zip(prompts, stops, strict=True)):
        which = f"prompt (number {number + 1})" if len(prompts) > 1 else "prompt"
        check_room(prompt, rule.max_new_tokens, model.capacity, which)
    return _tokens(model, prompts, samplers, stops)


def _tokens(
    model: CachedBatch, prompts: Sequence[Sequence[int]], samplers: Sequence[Sampler], stops: Sequence[StopRule]
) -> Iterator[tuple[int, TokenStep]]:
    histories = [list(prompt) for prompt in prompts]
    predictions: Sequence[Prediction] = _run_prompts(model, dict(enumerate(prompts)))
    running = set(range(len(prompts)))
    count = 0
    while running:
        count += 1
        for row in sorted(running):
            token_id = samplers[row].choose(predictions[row], histories[row], prompt_tokens=len(prompts[row]))
            histories[row].append(token_id)
            ended = stops[row].reason(token_id, count)
            if ended:
                running.remove(row)
            yield row, TokenStep(token_id, predictions[row], ended)
        if running:
            predictions = _step(model, histories, running)


def _run_prompts(model: CachedBatch, prompts: Mapping[int, Sequence[int]]) -> list[Prediction]:
    """Fills rows of the caches piece by piece, and returns predictions after each prompt; other rows wait."""
    if isinstance(model, LengthDependentBatch):
        for row, prompt in prompts.items():
            model.begin(row, len(prompt))
    chunk, longest = model.chunk, max(map(len, prompts.values()))
    predictions: dict[int, Prediction] = {}
    for start in range(0, longest, chunk):
        token_ids = np.zeros((model.batch, chunk), np.int32)
        position, last = np.zeros(model.batch, np.int32), np.full(model.batch, -1, np.int32)
        for row, prompt in prompts.items():
            piece = prompt[start : start + chunk]
            if piece:
                token_ids[row, : len(piece)] = piece
                position[row], last[row] = start, len(piece) - 1
        after = model.prefill(token_ids, position, last)
        predictions |= {row: after[row] for row in prompts if last[row] >= 0}
    return [predictions[row] for row in prompts]


def _step(model: CachedBatch, histories: Sequence[Sequence[int]], running: Collection[int]) -> Sequence[Prediction]:
    """Feeds the last token of every row, and returns predictions; those of rows that have ended are not used.

    Rows that have outgrown the keys in their caches are run anew before; the token that is fed is theirs once more.
    """
    outgrown = [
        row for row in running if isinstance(model, LengthDependentBatch) and model.outgrown(row, len(histories[row]))
    ]
    if outgrown:
        _run_prompts(model, {row: histories[row] for row in outgrown})
    token_ids, position = np.zeros(model.batch, np.int32), np.zeros(model.batch, np.int32)
    for row, history in enumerate(histories):
        # A row that has ended may have filled its cache; what it is fed is not used.
        token_ids[row], position[row] = history[-1], min(len(history), model.capacity) - 1
    return model.decode(token_ids, position)
