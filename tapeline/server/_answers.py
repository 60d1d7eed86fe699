"""Answers of an engine on their way into a task of the event loop."""

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from generation.engine import EndEvent, EngineClosedError, Event, PromptEvent, Ticket, TokenRequest
from lang_core import InputError, TapelineError
from tapeline.server._adapters import ServedAdapter
from tapeline.server._answer_text import AnswerText, Delta
from tapeline.server._errors import RequestError
from tapeline.server._mailbox import Mailbox
from tapeline.server._model import TokenEngine
from tapeline.server._paths import without_paths

_LATE: Final = 5.0  # seconds after its deadline in which the engine must have ended an answer
_REASONS: Final = {"eos": "stop", "length": "length"}


@dataclass(slots=True)
class Answer:
    """One answer while it comes.

    Attributes:
        index: number of the answer.
        text: its text.
        prompt: the engine's facts of the prompt; None before it has run.
        finish_reason: why it ended: ``stop`` or ``length``; None while it comes.
        stop: stop string that ended it; None if none did.
        times: when each token came, in seconds.
    """

    index: int
    text: AnswerText
    prompt: PromptEvent | None = None
    finish_reason: str | None = None
    stop: str | None = None
    times: list[float] = field(default_factory=list)


class Answers:
    """Answers to several requests of tokens; a context manager that cancels running requests at its end.

    Args:
        engine: makes the answers.
        requests: requests of tokens.
        texts: text of each answer.
        adapter: adapter of the answers, which is not replaced while they run; None without.

    Attributes:
        answers: every answer.
        began: when the requests were made, in seconds.

    Raises:
        BusyError: the engine's queue is full.
        InputError: a request does not fit the model.
    """

    def __init__(
        self,
        engine: TokenEngine,
        requests: Sequence[TokenRequest],
        texts: Sequence[AnswerText],
        adapter: ServedAdapter | None = None,
    ) -> None:
        self.answers: Final = [Answer(index, text) for index, text in enumerate(texts)]
        self.began: Final = perf_counter()
        self._events: Final = Mailbox[tuple[int, Event]]()
        self._tickets: Final[list[Ticket]] = []
        self._adapter: Final = adapter
        deadlines = [request.deadline for request in requests if request.deadline is not None]
        self._seconds: Final = max(deadlines) + _LATE if len(deadlines) == len(requests) else None
        try:
            for index, request in enumerate(requests):
                self._tickets.append(self._submit(engine, request, index))
        except BaseException:
            self.cancel()
            raise

    def _submit(self, engine: TokenEngine, request: TokenRequest, index: int) -> Ticket:
        if self._adapter is None:
            return engine.submit(request, functools.partial(self._post, index))
        self._adapter.begin()
        try:
            return engine.submit(request, functools.partial(self._post, index))
        except BaseException:
            self._adapter.end()
            raise

    def __enter__(self) -> "Answers":
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Cancels running requests."""
        for ticket in self._tickets:
            ticket.cancel()

    async def deltas(self) -> AsyncIterator[tuple[Answer, Delta]]:
        """Yields the parts of all answers as they come: one when the prompt has run, one per token, one at the end.

        Raises:
            RequestError: an answer was given up, for its deadline, a failure or the end of the server.
        """
        while any(answer.finish_reason is None for answer in self.answers):
            index, event = await self._event()
            answer = self.answers[index]
            if answer.finish_reason is None:
                ended = isinstance(event, EndEvent)
                yield answer, self._delta(answer, event)
                if answer.finish_reason is not None and not ended:  # who reads it may end it, too
                    self._tickets[index].cancel()

    async def _event(self) -> tuple[int, Event]:
        """Returns the next event.

        Raises:
            RequestError: the engine is stuck and did not end an answer at its deadline.
        """
        left = None if self._seconds is None else max(0.0, self.began + self._seconds - perf_counter())
        try:
            async with asyncio.timeout(left):
                return await self._events.get()
        except TimeoutError as error:
            raise RequestError(
                "the answer took too long, and the engine does not end it: ask again, or see /health",
                status=504,
                code="deadline_exceeded",
            ) from error

    def _delta(self, answer: Answer, event: Event) -> Delta:
        if isinstance(event, PromptEvent):
            answer.prompt = event
            return Delta("")
        if isinstance(event, EndEvent):
            answer.finish_reason = _finish_reason(event)
            delta = answer.text.finish()
            if answer.text.stopped:
                answer.finish_reason, answer.stop = "stop", answer.text.stop
            return delta
        answer.times.append(perf_counter())
        delta = answer.text.push(event)
        if answer.text.stopped:
            answer.finish_reason, answer.stop = "stop", answer.text.stop
        return delta

    def _post(self, index: int, event: Event) -> None:
        """Hands an event over; called on the engine's thread."""
        if self._adapter is not None and isinstance(event, EndEvent):
            self._adapter.end()
        self._events.put((index, event))


def _finish_reason(event: EndEvent) -> str:
    """Returns why an answer ended.

    Raises:
        RequestError: it was given up.
    """
    if event.reason in _REASONS:
        return _REASONS[event.reason]
    if event.reason == "deadline":
        raise RequestError(
            f"the answer took too long: {event.generated_tokens} tokens came in time; ask for fewer with max_tokens, "
            "or for more time with timeout",
            status=504,
            code="deadline_exceeded",
        )
    if event.reason == "cancelled" or isinstance(event.error, EngineClosedError):
        raise RequestError("the model was closed: ask again", status=503, code="shutting_down", retry_after=1)
    raise _failure(event.error)


def _failure(error: TapelineError | None) -> RequestError:
    if isinstance(error, InputError):
        return RequestError(without_paths(str(error)))
    failed = RequestError("the model failed, and the answer with it: ask again", status=500, code="model_failed")
    failed.__cause__ = error
    return failed
