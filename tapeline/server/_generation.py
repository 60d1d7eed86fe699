"""Requests for text: from fields to tokens, from tokens to an answer, whole or in pieces."""

import dataclasses
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from generation.engine import PromptPicture, TokenConstraint, TokenRequest
from tapeline.server._answer_text import AnswerText, Delta
from tapeline.server._answers import Answer, Answers
from tapeline.server._constraints import HeldAnswer, ThinkingLimit
from tapeline.server._errors import RequestError
from tapeline.server._events import EventStream, NamedEventStream, to_json
from tapeline.server._fields import GenerationFields
from tapeline.server._gone import unless_gone
from tapeline.server._model import TextModel
from tapeline.server._numbers import NumberBound
from tapeline.server._service import note, service_of

JSON: Final = "application/json"
F = TypeVar("F", bound=GenerationFields, covariant=True)


class Form(Protocol):
    """Form of an answer, chat or completion."""

    def read(self, answer: Answer, delta: Delta) -> None:
        """Reads a part of an answer, before ``chunk`` or ``whole``; it may set the answer's finish reason to end it."""
        ...

    def chunk(self, answer: Answer, delta: Delta) -> Mapping[str, Any] | None:
        """Returns an event of a part of an answer; None for none."""
        ...

    def whole(self, answers: Sequence[Answer], parts: Sequence[Sequence[Delta]]) -> Mapping[str, Any]:
        """Returns the whole of all answers, from their parts."""
        ...

    def last(self, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the event with the usage of tokens."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Generic[F]):
    """Answers that are wanted.

    Attributes:
        model: makes them.
        fields: fields of the request.
        prompts: tokens of each prompt.
        max_new_tokens: largest number of new tokens if the request does not say; None for all that fit.
        ends: tokens that end an answer.
        logprobs: likeliest tokens to send with each new one; None for none.
        prompt_logprobs: the same for the prompt.
        starts: characters before the answers to each prompt, as of an echo.
        pictures: pictures of the one prompt.
        keep: special tokens that the answers' text shows, such as marks of calls.
        parsed: True if the form searches the parsed text for stop strings, so that arguments of calls have none.
        thinking: limit of the model's thinking; None for unlimited.
        constraints: rule of each answer; empty for none.
        capped: True takes more new tokens than fit into the context, for a request that must state a number.
        bounded: True bounds the digits of numbers, as answers are JSON.
        client: who asks.
        cache_salt: salt of the prefixes that may be reused; None for nobody's.
        request_id: name of the request.
        seconds: longest time of an answer.
    """

    model: TextModel
    fields: F
    prompts: Sequence[Sequence[int]]
    max_new_tokens: int | None
    ends: frozenset[int]
    logprobs: int | None
    prompt_logprobs: int | None
    starts: Sequence[int]
    pictures: Sequence[PromptPicture] = ()
    keep: frozenset[str] = frozenset()
    parsed: bool = False
    thinking: ThinkingLimit | None = None
    constraints: Sequence[TokenConstraint] = ()
    capped: bool = False
    bounded: bool = False
    client: str
    cache_salt: str | None
    request_id: str
    seconds: float

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens of all prompts."""
        return sum(map(len, self.prompts))

    def check(self) -> None:
        """Checks the fields that do not need a grammar, before one is compiled.

        Raises:
            RequestError: a prompt and its answer do not fit into the model's context, or a setting is wrong.
            InputError: these are more answers than the engine takes.
            BusyError: the engine's queue is full.
        """
        self.model.engine.check_room(len(self.prompts) * self.fields.count)
        self.fields.sampling(self.model.defaults, self.model.vocabulary)
        for prompt in self.prompts:
            self._room(len(prompt))

    def start(self) -> Answers:
        """Asks the engine for every answer; those to one prompt have one seed after the other.

        Raises:
            RequestError: a prompt and its answer do not fit into the model's context.
            BusyError: the engine's queue is full.
        """
        places = [(prompt, turn) for prompt in range(len(self.prompts)) for turn in range(self.fields.count)]
        requests = [self._request(number, *place) for number, place in enumerate(places)]
        texts = [
            AnswerText(
                self.model.tokenizer.stream(keep=self._shown()),
                () if self.parsed else self.fields.stops,
                self.starts[prompt],
                min_tokens=self.fields.min_tokens,
                keep_stop=self.fields.include_stop_str_in_output,
            )
            for prompt, _ in places
        ]
        return Answers(self.model.engine, requests, texts, self.model.adapter)

    def _shown(self) -> frozenset[str]:
        """Returns the special tokens that the text of answers shows."""
        return self.keep if self.fields.skip_special_tokens else self.model.tokenizer.special_tokens()

    def _constraint(self, number: int, prompt: int) -> TokenConstraint | None:
        """Returns the rule of one answer; None for free text."""
        constraint = self.constraints[number] if self.constraints else None
        least = self.fields.min_tokens
        thinking = None if self.thinking is None else self.thinking.begin(self.prompts[prompt])
        numbers = NumberBound(self.model.tokenizer, self.model.vocabulary) if self.bounded else None
        if not least and thinking is None and numbers is None:
            return constraint
        ends = self.ends | set(self.fields.stop_token_ids)
        return HeldAnswer(constraint, min_tokens=least, ends=ends, thinking=thinking, numbers=numbers)

    def _request(self, number: int, prompt: int, turn: int) -> TokenRequest:
        sampling = self.fields.sampling(self.model.defaults, self.model.vocabulary)
        return TokenRequest(
            prompt=self.prompts[prompt],
            sampling=dataclasses.replace(sampling, seed=(sampling.seed + turn) % 2**64),
            max_new_tokens=self._room(len(self.prompts[prompt])),
            ends=self.ends | set(self.fields.stop_token_ids),
            ignore_eos=self.fields.ignore_eos,
            constraint=self._constraint(number, prompt),
            logprobs=self.logprobs,
            prompt_logprobs=self.prompt_logprobs,
            deadline=min(self.seconds, self.fields.timeout or self.seconds),
            client=self.client,
            cache_salt=self.fields.salt(self.cache_salt),
            request_id=self.request_id,
            pictures=self.pictures,
            adapter=None if self.model.adapter is None else self.model.adapter.row,
        )

    def _room(self, prompt: int) -> int:
        """Returns the largest number of new tokens of an answer; the last one does not take a position."""
        room = self.model.context - prompt + 1
        wanted = self.fields.new_tokens
        if self.capped and wanted is not None:
            wanted = min(wanted, max(1, room))
        if room < max(1, wanted or 1):
            raise RequestError(
                f"the model's context is {self.model.context} tokens: the prompt has {prompt}, and "
                f"{wanted or 1} new ones are asked for; shorten it, or ask for fewer with max_tokens",
                param="messages" if hasattr(self.fields, "messages") else "prompt",
                code="context_length_exceeded",
            )
        return max(1, min(room, self.max_new_tokens or room) if wanted is None else wanted)


async def respond(request: Request, job: Job[GenerationFields], form: Form) -> Response:
    """Returns the response to a request for text; a client that goes away ends its answers.

    Raises:
        RequestError: an answer was refused, or given up.
    """
    answers = job.start()
    if job.fields.stream:
        return EventStream(_events(request, job, form, answers))
    whole = await unless_gone(request.receive, _whole(request, job, form, answers))
    return Response(to_json(whole), media_type=JSON)


class EventForm(Protocol):
    """Form of an answer as named events; there is one answer."""

    def begin(self) -> Iterable[Mapping[str, Any]]:
        """Returns the events before the answer."""
        ...

    def events(self, answer: Answer, delta: Delta) -> Iterable[Mapping[str, Any]]:
        """Returns the events of a part of the answer; it may set the answer's finish reason to end it."""
        ...

    def end(self, answer: Answer, usage: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """Returns the events after the answer."""
        ...

    def body(self, answer: Answer, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the whole of the answer, after its events."""
        ...


async def respond_events(
    request: Request,
    job: Job[GenerationFields],
    form: EventForm,
    stream: Callable[[AsyncGenerator[Mapping[str, Any], None]], EventStream] = NamedEventStream,
) -> Response:
    """Returns the response to a request with one answer, as events of a form; see ``respond``.

    Args:
        request: the request.
        job: the answer that is wanted.
        form: makes the events.
        stream: makes the response of events.
    """
    answers = job.start()
    if job.fields.stream:
        return stream(_named_events(request, job, form, answers))

    async def whole() -> Mapping[str, Any]:
        async for _ in _named_events(request, job, form, answers):
            pass
        return form.body(answers.answers[0], usage(job, answers.answers))

    return Response(to_json(await unless_gone(request.receive, whole())), media_type=JSON)


async def _named_events(
    request: Request, job: Job[GenerationFields], form: EventForm, answers: Answers
) -> AsyncGenerator[Mapping[str, Any], None]:
    with answers:
        try:
            for event in form.begin():
                yield event
            async for answer, delta in answers.deltas():
                for event in form.events(answer, delta):
                    yield event
            for event in form.end(answers.answers[0], usage(job, answers.answers)):
                yield event
        finally:
            _account(request, job, answers)


async def _events(
    request: Request, job: Job[GenerationFields], form: Form, answers: Answers
) -> AsyncGenerator[Mapping[str, Any], None]:
    empty = {"usage": None} if job.fields.include_usage else {}
    with answers:
        try:
            async for answer, delta in answers.deltas():
                form.read(answer, delta)
                event = form.chunk(answer, delta)
                if event is not None:
                    running = {"usage": usage(job, answers.answers)} if job.fields.continuous_usage else empty
                    yield {**event, **running}
            if job.fields.include_usage:
                yield form.last(usage(job, answers.answers))
        finally:
            _account(request, job, answers)


async def _whole(request: Request, job: Job[GenerationFields], form: Form, answers: Answers) -> Mapping[str, Any]:
    parts: list[list[Delta]] = [[] for _ in answers.answers]
    with answers:
        try:
            async for answer, delta in answers.deltas():
                form.read(answer, delta)
                parts[answer.index].append(delta)
        finally:
            _account(request, job, answers)
    return {**form.whole(answers.answers, parts), "usage": usage(job, answers.answers)}


def usage(job: Job[GenerationFields], answers: Sequence[Answer]) -> dict[str, Any]:
    """Returns the usage of tokens; a prompt with several answers counts once."""
    first = [answer for answer in answers if answer.index % job.fields.count == 0]
    generated = 0 if job.fields.new_tokens == 0 else sum(answer.text.tokens for answer in answers)
    return {
        "prompt_tokens": job.prompt_tokens,
        "completion_tokens": generated,
        "total_tokens": job.prompt_tokens + generated,
        "prompt_tokens_details": {"cached_tokens": sum(one.prompt.reused for one in first if one.prompt)},
    }


def _account(request: Request, job: Job[GenerationFields], answers: Answers) -> None:
    """Records the cost of answers, for log and metrics."""
    service_of(request).metrics.answered(job.model.name, answers, job.prompt_tokens)
    used = usage(job, answers.answers)
    note(
        request,
        model=job.model.name,
        prompt_tokens=used["prompt_tokens"],
        completion_tokens=used["completion_tokens"],
        cached_tokens=used["prompt_tokens_details"]["cached_tokens"],
        finish_reasons=[answer.finish_reason for answer in answers.answers],
    )
