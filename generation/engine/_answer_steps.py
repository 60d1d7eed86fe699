"""Answers to some requests, token by token, in the thread of whoever asks for them."""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Literal

from generation import KnownLogits, TokenStep
from generation.engine._errors import ModelFailedError
from generation.engine._request import EndEvent, Event, PromptEvent, TokenEvent, TokenRequest
from generation.engine._steps import StepEngine, Ticket
from lang_core import TapelineError


class AnswerSteps(Iterator[tuple[int, TokenStep]]):
    """Next tokens of some requests, each with the number of its request; makes steps of the engine for them.

    Attributes:
        prompt: tokens of the last prompt with their log probabilities, if these were asked for.
        reused: tokens of prompts that the rows or the prefix store had.
    """

    def __init__(self, engine: StepEngine, requests: Sequence[TokenRequest]) -> None:
        """Submits requests, which ask for predictions.

        Raises:
            InputError: as ``StepEngine.submit``.
        """
        self.prompt: Sequence[TokenEvent | None] = ()
        self.reused = 0
        self._engine: Final = engine
        self._before: Final = engine.figures()
        self._new: Final = deque[tuple[int, TokenStep]]()
        self._constrained: Final = frozenset(n for n, request in enumerate(requests) if request.constraint is not None)
        self._held: Final[
            dict[int, TokenStep]
        ] = {}  # last tokens of constrained answers, which may turn out to end them
        self._running = len(requests)
        self._error: BaseException | None = None
        self._tickets: Final[list[Ticket]] = []
        for number, request in enumerate(requests):
            try:
                self._tickets.append(engine.submit(request, partial(self._take, number)))
            except TapelineError:
                self.close()
                raise

    def __next__(self) -> tuple[int, TokenStep]:
        """Returns the next token.

        Raises:
            StopIteration: all answers have ended.
            TapelineError: that ended one of them; of a call of the model that failed, the model's own.
        """
        while not self._new:
            if self._error is not None:
                raise self._error
            if not self._running:
                raise StopIteration
            self._engine.step()
        return self._new.popleft()

    def cancel(self, number: int) -> None:
        """Ends the answer to a request."""
        self._tickets[number].cancel()

    def close(self) -> None:
        """Ends all answers."""
        for ticket in self._tickets:
            ticket.cancel()

    @property
    def drafted(self) -> int:
        """Tokens of drafts since the requests were submitted."""
        return self._engine.figures().draft_tokens - self._before.draft_tokens

    @property
    def accepted(self) -> int:
        """Tokens of drafts that became tokens of answers since then."""
        return self._engine.figures().accepted_tokens - self._before.accepted_tokens

    def _take(self, number: int, event: Event) -> None:
        if isinstance(event, TokenEvent):
            self._hold(number, _step(event, None))
        elif isinstance(event, PromptEvent):
            self.reused += event.reused
            self.prompt = event.logprobs or ()
        else:
            self._end(number, event)

    def _end(self, number: int, event: EndEvent) -> None:
        self._running -= 1
        held = self._held.pop(number, None)
        if held is not None:
            last = "complete" if event.reason == "eos" and event.end_token is None else None
            self._new.append((number, TokenStep(held.token_id, held.prediction, last)))
        if event.error is not None:
            failed = isinstance(event.error, ModelFailedError)
            self._error = event.error.__cause__ if failed and event.error.__cause__ else event.error
        elif event.end_token is not None:
            self._new.append((number, _step(event.end_token, "eos")))
        elif event.reason == "length":  # its last token has just come
            _, last = self._new.pop()
            self._new.append((number, TokenStep(last.token_id, last.prediction, "length")))

    def _hold(self, number: int, step: TokenStep) -> None:
        """Takes a token. One of a constrained answer waits for the next event, which tells whether it is the last."""
        if number in self._constrained:
            held = self._held.get(number)
            self._held[number] = TokenStep(
                step.token_id, KnownLogits(step.logits), None
            )  # the next call overwrites them
            if held is None:
                return
            step = held
        self._new.append((number, step))


def _step(event: TokenEvent, ended: Literal["eos"] | None) -> TokenStep:
    assert event.prediction is not None
    return TokenStep(event.token_id, event.prediction, ended)
