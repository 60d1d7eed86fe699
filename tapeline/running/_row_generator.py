"""Answers of a bundle: the server's engine, in the caller's thread."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Final

import numpy as np

from generation import SamplingConfig, check_room
from generation.engine import (
    AnswerSteps,
    Drafting,
    PromptPicture,
    StepEngine,
    TokenConstraint,
    TokenRequest,
)
from lang_core import InputError
from tapeline.bundle import Bundle
from tapeline.grammar import compile_constraints
from tapeline.runners import RowSource
from tapeline.running._generation import GenerateOptions, TokenStream, check_stops, until_another
from tapeline.running._prompt_cache import PromptCacheFile
from tapeline.running._scores import Scores, check_scored
from tapeline.text import Tokenizer


class RowGenerator:
    """Makes streams of tokens of one or more prompts each; one stream at a time."""

    def __init__(
        self, bundle: Bundle, source: RowSource, drafting: Drafting | None, prompt_cache: PromptCacheFile | None
    ) -> None:
        """Allocates nothing yet.

        Args:
            bundle: the bundle.
            source: opens the bundle.
            drafting: speculation; None for none.
            prompt_cache: file with the entries of a prompt's row; None for none.
        """
        self._bundle: Final = bundle
        self._source: Final = source
        self._drafting: Final = drafting
        self._prompt_cache: Final = prompt_cache
        self._answers: AnswerSteps | None = None

    @property
    def token_bytes(self) -> int:
        """Bytes of token ids and their positions that were moved so far."""
        return self._source.token_bytes

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary, V."""
        return self._engine.vocabulary

    def scores(self, token_ids: Sequence[int]) -> Scores:
        """Returns the log-probability of each token, given those before it.

        Raises:
            InputError: there are fewer than two tokens, or more than fit.
        """
        check_scored(token_ids, self._engine.capacity)
        request = TokenRequest(
            prompt=token_ids, sampling=SamplingConfig(), max_new_tokens=1, prompt_logprobs=0, predictions=True
        )
        answers = self._ask([request])
        for _ in answers:
            pass
        logprobs = [token.logprob for token in answers.prompt if token is not None]
        return Scores(tuple(token_ids), np.array(logprobs))

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
        """Continues prompts, as many at once as the bundle has slots.

        Args:
            prompts: tokens of each.
            options: of the generation.
            ends: tokens that end an answer.
            tokenizer: turns tokens into text.
            pictures: pictures of the one prompt.
            at_once: True refuses an empty list of prompts.

        Raises:
            InputError: options are out of range, or a prompt does not fit.
        """
        check_stops(options, tokenizer, self._bundle)
        options.check_decoder(self._bundle)
        if pictures and self._prompt_cache is not None:
            raise InputError("`prompt_cache` keeps tokens, and no pictures: leave it out")
        if at_once and not prompts:
            raise InputError("0 prompts: give at least one")
        engine = self._engine
        rules = options.rules(ends, prompts, engine.capacity)
        for number, (prompt, rule) in enumerate(zip(prompts, rules, strict=True), 1):
            which = f"prompt (number {number})" if len(prompts) > 1 else "prompt"
            check_room(prompt, rule.max_new_tokens, engine.capacity, which)
        constraints = self._constraints(options, tokenizer, ends, len(prompts))
        requests = [
            TokenRequest(
                prompt=prompt,
                constraint=constraint,
                sampling=options,
                max_new_tokens=rule.max_new_tokens,
                ends=ends,
                ignore_eos=options.ignore_eos,
                pictures=pictures,
                predictions=True,
            )
            for prompt, rule, constraint in zip(prompts, rules, constraints, strict=True)
        ]
        answers = self._ask(requests)
        return TokenStream(
            until_another(answers, lambda: self._answers is not answers, self._bundle),
            prompts,
            tokenizer,
            limits=[rule.max_new_tokens for rule in rules],
            stops=options.stops,
            counts=_Counts(answers, self._source),
            on_stop=answers.cancel,
            on_end=partial(self._save, len(prompts[-1])) if prompts else lambda: None,
        )

    def _constraints(
        self, options: GenerateOptions, tokenizer: Tokenizer | None, ends: frozenset[int], count: int
    ) -> Sequence[TokenConstraint | None]:
        """Returns the constraint of each answer; None without one."""
        if options.constraint is None or not count:
            return [None] * count
        if tokenizer is None:
            raise InputError(
                f"`constraint`: {self._bundle.path} has no tokenizer, so its answers have no text: leave it out"
            )
        return compile_constraints(options.constraint, tokenizer, ends, count)

    @cached_property
    def _engine(self) -> StepEngine:
        source = self._source
        runner = source.open()
        engine = StepEngine(runner, source.settings(runner), remake=source.open, drafting=self._drafting)
        prefix = None if self._prompt_cache is None else self._prompt_cache.load(runner, source.cache_specs)
        if prefix is not None:
            engine.put_prefix(prefix)
        return engine

    def _save(self, prompt: int) -> None:
        """Writes the prompt cache of the last prompt, of so many tokens."""
        prefix = None if self._prompt_cache is None else self._engine.last_prefix(prompt)
        if self._prompt_cache is not None and prefix is not None:
            self._prompt_cache.save(prefix)

    def _ask(self, requests: Sequence[TokenRequest]) -> AnswerSteps:
        """Ends the stream that runs, and begins another."""
        engine = self._engine
        if self._answers is not None:
            self._answers.close()
        self._answers = AnswerSteps(engine, requests)
        return self._answers


class _Counts:
    """Counts of a stream: an ``AnswerCounts``."""

    def __init__(self, answers: AnswerSteps, source: RowSource) -> None:
        self._answers: Final = answers
        self._source: Final = source
        self._before: Final = source.head_calls

    @property
    def reused(self) -> int:
        return self._answers.reused

    @property
    def drafted(self) -> int:
        return self._answers.drafted

    @property
    def accepted(self) -> int:
        return self._answers.accepted

    @property
    def head_calls(self) -> int:
        return self._source.head_calls - self._before
