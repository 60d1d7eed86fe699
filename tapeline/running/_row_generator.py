"""Answers of a bundle with slots: the server's engine, in the caller's thread."""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Final, Literal

import numpy as np

from generation import SamplingConfig, TokenStep, check_room
from generation.engine import (
    Drafting,
    EndEvent,
    EngineSettings,
    Event,
    ModelFailedError,
    PromptEvent,
    PromptPicture,
    StepEngine,
    Ticket,
    TokenEvent,
    TokenRequest,
)
from lang_core import InputError
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.running._generation import GenerateOptions, TokenStream, check_stops
from tapeline.running._measured_invariance import open_slots
from tapeline.running._scores import Scores, check_scored
from tapeline.running._slots import BundleSlots
from tapeline.text import Tokenizer

_SETTINGS: Final = EngineSettings(max_waiting=1 << 30, deadline=None)


class RowGenerator:
    """Makes streams of tokens of one or more prompts each; one stream at a time."""

    def __init__(self, bundle: Bundle, session: Session, drafting: Drafting | None) -> None:
        """Allocates nothing yet.

        Args:
            bundle: exported with slots.
            session: the bundle's.
            drafting: speculation; None for none.
        """
        self._bundle: Final = bundle
        self._session: Final = session
        self._drafting: Final = drafting
        self._tickets: Sequence[Ticket] = ()
        self._streams = 0
        self.token_bytes: Final = 0  # calls on rows do not count them

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
        for _ in self._steps(answers, self._streams):
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
            at_once: True refuses to continue no prompt at all.

        Raises:
            InputError: options are out of range, or a prompt does not fit.
        """
        check_stops(options, tokenizer, self._bundle)
        if at_once and not prompts:
            raise InputError("0 prompts: give at least one")
        engine = self._engine
        rules = options.rules(ends, prompts, engine.capacity)
        for number, (prompt, rule) in enumerate(zip(prompts, rules, strict=True), 1):
            which = f"prompt (number {number})" if len(prompts) > 1 else "prompt"
            check_room(prompt, rule.max_new_tokens, engine.capacity, which)
        requests = [
            TokenRequest(
                prompt=prompt,
                sampling=options,
                max_new_tokens=rule.max_new_tokens,
                ends=ends,
                ignore_eos=options.ignore_eos,
                pictures=pictures,
                predictions=True,
            )
            for prompt, rule in zip(prompts, rules, strict=True)
        ]
        answers = self._ask(requests)
        return TokenStream(
            self._steps(answers, self._streams),
            prompts,
            tokenizer,
            limits=[rule.max_new_tokens for rule in rules],
            stops=options.stops,
            counts=answers,
            on_stop=self._end,
        )

    @cached_property
    def _engine(self) -> StepEngine:
        slots = open_slots(self._bundle, self._session)
        remake = partial(BundleSlots, self._bundle, self._session, invariance=slots.invariance)
        return StepEngine(slots, _SETTINGS, remake=remake, drafting=self._drafting)

    def _ask(self, requests: Sequence[TokenRequest]) -> "_Answers":
        """Ends the stream that runs, and begins another."""
        for ticket in self._tickets:
            ticket.cancel()
        self._streams += 1
        answers = _Answers(self._engine, len(requests))
        self._tickets = [
            self._engine.submit(request, partial(answers.take, number)) for number, request in enumerate(requests)
        ]
        return answers

    def _end(self, number: int) -> None:
        self._tickets[number].cancel()

    def _steps(self, answers: "_Answers", stream: int) -> Iterator[tuple[int, TokenStep]]:
        """Returns the next tokens, each with the number of its prompt, for as long as no other stream has begun."""
        while answers.new or answers.running or answers.error:
            if self._streams != stream:
                raise InputError(
                    f"this stream ended when another began on the same model: load {self._bundle.path} twice to run two"
                )
            if answers.new:
                yield answers.new.popleft()
            elif answers.error is not None:
                raise answers.error
            else:
                self._engine.step()


class _Answers:
    """Events of a stream's requests: an ``AnswerCounts``.

    Attributes:
        new: tokens that nobody has taken yet, each with the number of its prompt.
        running: number of requests that have not ended.
        error: error that ended one of them; None without.
        prompt: tokens of the last prompt with their log probabilities, if these were asked for.
        reused: tokens of prompts that the rows or the prefix store had.
        head_calls: 0, as rows take no drafts of a head.
    """

    def __init__(self, engine: StepEngine, count: int) -> None:
        """Begins without events of ``count`` requests to an engine."""
        self.new: Final = deque[tuple[int, TokenStep]]()
        self.running = count
        self.error: BaseException | None = None
        self.prompt: Sequence[TokenEvent | None] = ()
        self.reused = 0
        self.head_calls: Final = 0
        self._engine: Final = engine
        self._before: Final = engine.figures()

    @property
    def drafted(self) -> int:
        """Tokens of drafts since the stream began."""
        return self._engine.figures().draft_tokens - self._before.draft_tokens

    @property
    def accepted(self) -> int:
        """Tokens of drafts that became tokens of answers since the stream began."""
        return self._engine.figures().accepted_tokens - self._before.accepted_tokens

    def take(self, number: int, event: Event) -> None:
        """Takes an event of the request of a prompt with this number."""
        if isinstance(event, TokenEvent):
            self.new.append((number, _step(event, None)))
        elif isinstance(event, PromptEvent):
            self.reused += event.reused
            self.prompt = event.logprobs or ()
        else:
            self._end(number, event)

    def _end(self, number: int, event: EndEvent) -> None:
        self.running -= 1
        if event.error is not None:
            failed = isinstance(event.error, ModelFailedError)
            self.error = event.error.__cause__ if failed and event.error.__cause__ else event.error
        elif event.end_token is not None:
            self.new.append((number, _step(event.end_token, "eos")))
        elif event.reason == "length":  # its last token has just come
            _, last = self.new.pop()
            self.new.append((number, TokenStep(last.token_id, last.prediction, "length")))


def _step(event: TokenEvent, ended: Literal["eos"] | None) -> TokenStep:
    assert event.prediction is not None
    return TokenStep(event.token_id, event.prediction, ended)
