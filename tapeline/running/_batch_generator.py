"""Answers of a bundle exported with positions=per_row: prompts side by side, from their first token to the last."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from generation import Sampler, StopRule, TokenStep, check_room, generate_batch
from generation.engine import PromptPicture
from lang_core import InputError
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.running._generation import GenerateOptions, TokenStream, check_stops, until_another
from tapeline.running._model import BundleBatch, encoder_arguments
from tapeline.running._scores import Scores
from tapeline.text import Tokenizer


class BatchGenerator:
    """Makes streams of tokens, one at a time: they write into the same caches."""

    def __init__(self, bundle: Bundle, session: Session, encoder_inputs: Mapping[str, np.ndarray | int] | None) -> None:
        """Allocates nothing yet.

        Args:
            bundle: the bundle.
            session: the bundle's.
            encoder_inputs: arguments of the bundle's encoder by name.
        """
        self._bundle: Final = bundle
        self._session: Final = session
        self._encoder_inputs: Final = encoder_inputs
        self._model: BundleBatch | None = None
        self._used = False
        self._streams = 0

    @property
    def token_bytes(self) -> int:
        """Bytes of token ids and their positions that were moved since the caches were last empty."""
        return 0 if self._model is None else self._model.token_bytes

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary, V."""
        return self._empty().vocabulary

    def scores(self, token_ids: Sequence[int]) -> Scores:
        """Raises InputError: the bundle is for several sequences."""
        del token_ids
        raise InputError(f"{self._bundle.path}: scores need a bundle exported without positions=per_row")

    def stream(
        self,
        prompts: Sequence[Sequence[int]],
        options: GenerateOptions,
        ends: frozenset[int],
        tokenizer: Tokenizer | None,
        pictures: Sequence[PromptPicture] = (),
        *,
        at_once: bool = True,
    ) -> TokenStream:
        """Continues prompts.

        Args:
            prompts: tokens of each.
            options: of the generation.
            ends: tokens that end an answer.
            tokenizer: turns tokens into text.
            pictures: of the prompt; the bundle takes none.
            at_once: False continues as many prompts at a time as the bundle takes.

        Raises:
            InputError: options are out of range, or the bundle does not take these prompts.
        """
        check_stops(options, tokenizer, self._bundle)
        if pictures:
            raise InputError(
                f"pictures go with a bundle exported without positions=per_row, and {self._bundle.path} has these"
            )
        model = self._empty()
        rules = options.rules(ends, prompts, model.capacity)
        self._streams += 1
        own = self._streams
        samplers = [Sampler(options, model.vocabulary) for _ in prompts]
        steps = self._batches(model, prompts, samplers, rules, at_once=at_once)
        return TokenStream(
            until_another(steps, lambda: self._streams != own, self._bundle),
            prompts,
            tokenizer,
            limits=[rule.max_new_tokens for rule in rules],
            stops=options.stops,
            counts=_NO_COUNTS,
            on_stop=lambda number: None,
        )

    def _empty(self) -> BundleBatch:
        """Returns the model, with empty caches."""
        if self._model is None or self._used:
            given = encoder_arguments(self._bundle, self._encoder_inputs)
            self._model, self._used = BundleBatch(self._bundle, self._session, given), False
        return self._model

    def _batches(
        self,
        model: BundleBatch,
        prompts: Sequence[Sequence[int]],
        samplers: Sequence[Sampler],
        rules: Sequence[StopRule],
        *,
        at_once: bool,
    ) -> Iterator[tuple[int, TokenStep]]:
        """Returns the next tokens of prompts that run at once, each with the number of its prompt."""
        if not prompts and not at_once:
            return iter(())
        size = len(prompts) if at_once else model.batch
        for number, (prompt, rule) in enumerate(zip(prompts[size:], rules[size:], strict=True), size + 1):
            check_room(prompt, rule.max_new_tokens, model.capacity, f"prompt (number {number})")
        self._used = True
        first = generate_batch(model, prompts[:size], samplers[:size], rules[:size])
        return itertools.chain(first, self._later_batches(size, prompts, samplers, rules))

    def _later_batches(
        self, size: int, prompts: Sequence[Sequence[int]], samplers: Sequence[Sampler], rules: Sequence[StopRule]
    ) -> Iterator[tuple[int, TokenStep]]:
        for start in range(size, len(prompts), size):
            part = slice(start, start + size)
            model = self._empty()
            self._used = True
            for row, step in generate_batch(model, prompts[part], samplers[part], rules[part]):
                yield start + row, step


class _NoCounts:
    """Counts of a batch, which reuses and drafts nothing: an ``AnswerCounts``."""

    reused = drafted = accepted = head_calls = 0


_NO_COUNTS: Final = _NoCounts()
