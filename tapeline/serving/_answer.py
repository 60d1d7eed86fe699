"""The answer to one request, from its queue to its end."""

from typing import Final, Literal

import numpy as np

from lang_core import TapelineError
from tapeline.serving._logprobs import token_event
from tapeline.serving._request import EndEvent, Event, OnEvent, PromptEvent, TokenEvent, TokenRequest
from transformer_core.generation import Prediction, Sampler, StopRule

Reason = Literal["eos", "length", "cancelled", "deadline", "error"]


class Answer:
    """Tokens of one request, and what was said of them.

    Attributes:
        request: the request.
        expires: time after which it ends where it is; None for never.
        fed: number of its tokens whose entries are in the caches.
        reused: number of those that were there before.
        cancelled: set by any thread; the answer ends with the next tick.
        reason: why it has ended; None before.
    """

    def __init__(self, request: TokenRequest, on_event: OnEvent, vocabulary: int, expires: float | None) -> None:
        """Begins with the prompt.

        Args:
            request: the request.
            on_event: is told what happens. If it raises, the answer is cancelled.
            vocabulary: V.
            expires: time after which it ends.

        Raises:
            ConfigError: a setting of the sampling does not fit the vocabulary.
        """
        prompt = len(request.prompt)
        self.request: Final = request
        self.expires: Final = expires
        self.fed = 0
        self.reused = 0
        self.cancelled = False
        self.reason: Reason | None = None
        self._on_event: Final = on_event
        self._sampler: Final = Sampler(request.sampling, vocabulary)
        ignore_eos = request.ignore_eos and request.constraint is None
        self._stop: Final = StopRule(request.ends, request.max_new_tokens, ignore_eos)
        self._tokens: Final = np.zeros(prompt + request.max_new_tokens, np.int64)
        self._tokens[:prompt] = request.prompt
        self._known = prompt
        self._logprobs: Final[list[TokenEvent | None]] = [None]

    @property
    def prompt(self) -> np.ndarray:
        """The prompt i64 [P]."""
        return self._tokens[: len(self.request.prompt)]

    @property
    def tokens(self) -> np.ndarray:
        """All tokens so far, i64 [P + generated]."""
        return self._tokens[: self._known]

    @property
    def generated(self) -> int:
        """Number of new tokens."""
        return self._known - len(self.request.prompt)

    @property
    def prefilling(self) -> bool:
        """Whether its prompt is run in chunks and is not done."""
        return self.fed < len(self.request.prompt) and self.request.prompt_logprobs is None

    def say_prompt(self) -> None:
        """Sends the event of the prompt."""
        asked = self.request.prompt_logprobs is not None
        self._send(PromptEvent(self.reused, tuple(self._logprobs) if asked else None))

    def take(self, prediction: Prediction) -> None:
        """Goes on with the prediction after its last token that was fed: chooses a token and sends it.

        Raises:
            TapelineError: no token can be chosen.
        """
        if self.fed < len(self.request.prompt):
            most = self.request.prompt_logprobs or 0
            self._logprobs.append(token_event(int(self._tokens[self.fed]), prediction.logits(), most))
            return
        if self.fed == len(self.request.prompt):
            self.say_prompt()
        token_id = self._choose(prediction)
        reason = self._stop.reason(token_id, self.generated)
        if reason != "eos":
            self._send(self._event(token_id, prediction))
        if reason:
            self.end(reason)

    def end(self, reason: Reason, error: TapelineError | None = None) -> None:
        """Ends the answer and says so; does nothing if it has ended."""
        if self.reason is None:
            self.reason = reason
            self._send(EndEvent(reason, error, len(self.request.prompt), self.generated, self.reused))

    def _choose(self, prediction: Prediction) -> int:
        token_id = self._sampler.choose(prediction, self.tokens)
        self._tokens[self._known] = token_id
        self._known += 1
        return token_id

    def _event(self, token_id: int, prediction: Prediction) -> TokenEvent:
        most = self.request.logprobs
        return TokenEvent(token_id) if most is None else token_event(token_id, prediction.logits(), most)

    def _send(self, event: Event) -> None:
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001 - whatever the listener raises, it listens no more
            self.cancelled = True
