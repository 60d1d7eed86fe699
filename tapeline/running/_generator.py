"""Answers of a bundle without slots: caches, memory of prompts, prompt cache, speculation."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from generation import Sampler, Speculation, StopRule, TokenStep, check_room, generate, generate_batch
from generation.engine import PromptPicture
from lang_core import InputError
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.cli import check_writable
from tapeline.running._arrays import ordered_inputs
from tapeline.running._generation import GenerateOptions, TokenStream, check_stops
from tapeline.running._model import (
    ENCODE,
    BundleBatch,
    BundleModel,
    DraftingBundle,
    ScoringBundle,
    has_row_positions,
)
from tapeline.running._prompt_cache import PromptCacheFile
from tapeline.running._prompt_memory import BundlePromptMemory
from tapeline.running._prompt_pictures import PictureEmbeddings, PictureMemory, PromptPictures
from tapeline.running._scores import Scores, cached_logits, scores
from tapeline.running._speculating import Speculating
from tapeline.text import Tokenizer
from transformer_core.models import DRAFT


class Generator:
    """Makes streams of tokens, one at a time: they write into the same caches."""

    def __init__(
        self,
        bundle: Bundle,
        session: Session,
        *,
        encoder_inputs: Mapping[str, np.ndarray | int] | None,
        prompt_cache: Path | None,
        speculate: Speculating | None,
    ) -> None:
        """Allocates nothing yet.

        Args:
            bundle: the bundle.
            session: the bundle's.
            encoder_inputs: arguments of the bundle's encoder by name.
            prompt_cache: file that keeps what a prompt left in the caches.
            speculate: begins the speculation of an answer; None for none.
        """
        self._bundle: Final = bundle
        self._session: Final = session
        self._encoder_inputs: Final = encoder_inputs
        self._prompt_cache_path: Final = prompt_cache
        self._speculate: Final = speculate
        self._model: BundleModel | BundleBatch | None = None
        self._memory: BundlePromptMemory | None = None
        self._prompt_cache: PromptCacheFile | None = None
        self._used_up = False
        self._streams = 0

    @property
    def token_bytes(self) -> int:
        """Bytes of token ids and their positions that were moved so far."""
        return 0 if self._model is None else self._model.token_bytes

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary, V."""
        return self._opened().vocabulary

    def _opened(self, *, several: bool = False) -> BundleModel | BundleBatch:
        """Returns the model, which has empty caches or a memory of what they hold.

        Args:
            several: True for several prompts at once.

        Raises:
            InputError: the bundle does not generate, or does not go with speculation or a prompt cache.
        """
        if self._model is not None and not self._used_up and (isinstance(self._model, BundleBatch) or not several):
            return self._model
        if several or has_row_positions(self._bundle):
            return self._batch()
        return self._single()

    def scores(self, token_ids: Sequence[int]) -> Scores:
        """Returns the log-probability of each token, given those before it.

        Raises:
            InputError: there are fewer than two tokens or more than fit, or the bundle is for several sequences.
        """
        model = self._opened()
        if not isinstance(model, BundleModel) or self._memory is None:
            raise InputError(f"{self._bundle.path}: scores need a bundle exported without positions=per_row")
        self._streams += 1
        self._memory.restore(())
        return scores(token_ids, cached_logits(model, token_ids))

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
            pictures: pictures of the one prompt.
            at_once: False continues as many prompts at a time as the bundle takes.

        Raises:
            InputError: options are out of range, or the bundle does not take these prompts.
        """
        check_stops(options, tokenizer, self._bundle)
        model = self._opened(several=at_once and len(prompts) > 1)
        self._check_pictures(model, pictures)
        rules = options.rules(ends, prompts, model.capacity)
        speculations = (
            [self._speculate(model) for _ in prompts] if self._speculate and isinstance(model, ScoringBundle) else []
        )
        self._streams += 1
        stopped = set[int]()
        samplers = [Sampler(options, model.vocabulary) for _ in prompts]
        if isinstance(model, BundleBatch):
            steps = self._batches(model, prompts, samplers, rules, at_once=at_once)
        else:
            seen = self._embeddings.of(pictures) if pictures else None
            steps = self._in_turn(model, prompts, samplers, rules, speculations, seen, stopped)
        return TokenStream(
            self._alone(steps, self._streams),
            prompts,
            tokenizer,
            limits=[rule.max_new_tokens for rule in rules],
            stops=options.stops,
            counts=_Counts(self._memory, speculations),
            on_stop=stopped.add,
            on_end=self._save_prompt_cache,
        )

    @cached_property
    def _embeddings(self) -> PictureEmbeddings:
        return PictureEmbeddings(self._bundle, self._session)

    def _check_pictures(self, model: BundleModel | BundleBatch, pictures: Sequence[PromptPicture]) -> None:
        """Refuses pictures in bundles and with options that have no place for them."""
        if not pictures:
            return
        if isinstance(model, BundleBatch):
            raise InputError(
                f"pictures go with a bundle exported without positions=per_row, and {self._bundle.path} has these"
            )
        if self._prompt_cache_path is not None:
            raise InputError("`prompt_cache` keeps tokens, and no pictures: leave it out")

    def _batch(self) -> BundleBatch:
        if self._speculate is not None:
            raise InputError(
                "`speculate` and `draft` go with one prompt and a bundle exported without positions=per_row"
            )
        self._model, self._used_up = BundleBatch(self._bundle, self._session, self._encoder_arguments), False
        if self._prompt_cache_path is not None:
            raise InputError("`prompt_cache` goes with one prompt and a bundle exported without positions=per_row")
        return self._model

    def _single(self) -> BundleModel:
        names = [entry_point.name for entry_point in self._bundle.config.entry_points]
        kind = ScoringBundle if self._speculate is not None or "score" in names else BundleModel
        if kind is ScoringBundle and DRAFT in names:
            kind = DraftingBundle
        model = kind(self._bundle, self._session, self._encoder_arguments)
        self._model, self._memory = model, BundlePromptMemory(model)
        if self._prompt_cache_path is not None:
            check_writable("prompt_cache", self._prompt_cache_path)
            self._prompt_cache = PromptCacheFile(
                self._prompt_cache_path, self._bundle, self._session.module.name, model, self._memory
            )
            self._prompt_cache.load()
        return model

    @cached_property
    def _encoder_arguments(self) -> Sequence[np.ndarray | int]:
        """Arguments of the bundle's encoder in its order; none where it has no encoder."""
        names = [entry_point.name for entry_point in self._bundle.config.entry_points]
        if ENCODE in names or self._encoder_inputs:
            return ordered_inputs(self._bundle.entry_point(ENCODE), self._encoder_inputs or {})
        return ()

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
        self._used_up = True
        first = generate_batch(model, prompts[:size], samplers[:size], rules[:size])
        return itertools.chain(first, self._later_batches(size, prompts, samplers, rules))

    def _later_batches(
        self, size: int, prompts: Sequence[Sequence[int]], samplers: Sequence[Sampler], rules: Sequence[StopRule]
    ) -> Iterator[tuple[int, TokenStep]]:
        for start in range(size, len(prompts), size):
            part = slice(start, start + size)
            model = self._batch()  # with empty caches
            self._used_up = True
            for row, step in generate_batch(model, prompts[part], samplers[part], rules[part]):
                yield start + row, step

    def _in_turn(
        self,
        model: BundleModel,
        prompts: Sequence[Sequence[int]],
        samplers: Sequence[Sampler],
        rules: Sequence[StopRule],
        speculations: Sequence[Speculation],
        pictures: PromptPictures | None,
        stopped: Collection[int],
    ) -> Iterator[tuple[int, TokenStep]]:
        """Returns the next tokens of one prompt after the other, each with the number of its prompt.

        Args:
            model: model of one sequence.
            prompts: tokens of each prompt.
            samplers: sampler of each prompt.
            rules: rule that ends each prompt's tokens.
            speculations: speculation of each prompt; empty for none.
            pictures: pictures of the one prompt, or None.
            stopped: numbers of the prompts whose tokens end here.
        """
        memory = self._memory
        if pictures is not None and memory is not None:
            memory = PictureMemory(memory, pictures)
        model.see(pictures)
        streams = [
            generate(model, prompt, sampler, rule, memory=memory, speculation=speculation)
            for prompt, sampler, rule, speculation in itertools.zip_longest(prompts, samplers, rules, speculations)
        ]
        return _until_stopped(streams, stopped)

    def _alone(self, steps: Iterator[tuple[int, TokenStep]], number: int) -> Iterator[tuple[int, TokenStep]]:
        """Passes steps on for as long as no other stream has begun."""
        while True:
            if self._streams != number:
                raise InputError(
                    f"this stream ended when another began on the same model: load {self._bundle.path} twice to run two"
                )
            step = next(steps, None)
            if step is None:
                return
            yield step

    def _save_prompt_cache(self) -> None:
        if self._prompt_cache is not None:
            self._prompt_cache.save()


class _Counts:
    """Counts of a stream: an ``AnswerCounts``."""

    def __init__(self, memory: BundlePromptMemory | None, speculations: Sequence[Speculation]) -> None:
        self._memory, self._speculations = memory, speculations

    @property
    def reused(self) -> int:
        return 0 if self._memory is None else self._memory.reused

    @property
    def drafted(self) -> int:
        return sum(one.drafted for one in self._speculations)

    @property
    def accepted(self) -> int:
        return sum(one.accepted for one in self._speculations)

    @property
    def head_calls(self) -> int:
        return sum(one.head_calls for one in self._speculations)


def _until_stopped(streams: Sequence[Iterator[TokenStep]], stopped: Collection[int]) -> Iterator[tuple[int, TokenStep]]:
    for number, steps in enumerate(streams):
        for step in steps:
            yield number, step
            if number in stopped:
                break
