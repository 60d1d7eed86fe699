"""The answer to one request, from its queue to its end."""

import dataclasses
from typing import Final, Literal

import numpy as np

from generation import KnownLogits, Prediction, Sampler, StopRule
from generation.engine._constraints import AnswerConstraint
from generation.engine._guard import unguarded
from generation.engine._pictures import PromptSight, content_keys
from generation.engine._request import EndEvent, Event, OnEvent, PromptEvent, TokenEvent, TokenRequest
from lang_core import TapelineError

_GRACE: Final = 0.001  # seconds for a mask that was computed while the model ran, in each tick

Reason = Literal["eos", "length", "cancelled", "deadline", "error"]


class Answer:
    """Tokens of one request, and what was said of them.

    Attributes:
        request: the request.
        expires: time after which it ends where it is; None for never.
        sight: what is known of the prompt's pictures.
        salt: whose prefixes it may reuse; None for nobody's. Sequences with other keys have other salts.
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
        self.salt: str | None = request.cache_salt
        self.expires: Final = expires
        self.fed = 0
        self.reused = 0
        self.cancelled = False
        self.reason: Reason | None = None
        self._on_event: Final = on_event
        self._vocabulary: Final = vocabulary
        self._sampler: Final = Sampler(request.sampling, vocabulary)
        ignore_eos = request.ignore_eos and request.constraint is None
        self._stop: Final = StopRule(request.ends, request.max_new_tokens, ignore_eos)
        self._tokens: Final = np.zeros(prompt + request.max_new_tokens, np.int64)
        self._tokens[:prompt] = request.prompt
        self._keys: Final = content_keys(self._tokens, request.pictures) if request.pictures else self._tokens
        self.sight: Final = PromptSight(request.pictures, request.cache_salt)
        self._known = prompt
        self._filling = prompt  # tokens that are run in pieces
        self._logprobs: Final[list[TokenEvent | None]] = [None]
        self._constraint: Final = None if request.constraint is None else AnswerConstraint(request.constraint)
        self._held: Prediction | None = None
        self._unsettled = False
        self._limit: Reason | None = None

    @property
    def prompt(self) -> np.ndarray:
        """The prompt i64 [P]; after ``refill`` all tokens until then."""
        return self._tokens[: self._filling]

    @property
    def tokens(self) -> np.ndarray:
        """All tokens so far, i64 [P + generated]."""
        return self._tokens[: self._known]

    @property
    def keys(self) -> np.ndarray:
        """Numbers by which prefixes are compared, i64 [P + generated]: tokens, and of pictures their content."""
        return self._keys[: self._known]

    @property
    def prompt_keys(self) -> np.ndarray:
        """The same of the prompt, i64 [P]."""
        return self._keys[: self._filling]

    @property
    def generated(self) -> int:
        """Number of new tokens."""
        return self._known - len(self.request.prompt)

    @property
    def remaining(self) -> int:
        """Number of new tokens that it may still have."""
        return len(self._tokens) - self._known

    @property
    def positions(self) -> int:
        """Number of positions that it needs at most: the last token is never run."""
        return len(self._tokens) - 1

    @property
    def prefilling(self) -> bool:
        """True while its prompt is run in chunks."""
        scored = self.request.prompt_logprobs is not None and self._filling == len(self.request.prompt)
        return self.fed < self._filling and not scored

    @property
    def waiting(self) -> bool:
        """True while its constraint computes: it takes no part in calls of the model."""
        return self._unsettled or self._held is not None

    def refill(self) -> None:
        """Has all its tokens run anew, in pieces: the keys in the caches are of no use any more."""
        self._filling, self.fed = self._known, 0

    def leaves(self, now: float) -> bool:
        """Returns whether it is to end where it is."""
        return self.cancelled or (self.expires is not None and now >= self.expires)

    def leave(self) -> None:
        """Ends where it is."""
        self.end("cancelled" if self.cancelled else "deadline")

    def take(self, prediction: Prediction) -> None:
        """Goes on with the prediction after its last token that was fed: chooses a token and sends it.

        Raises:
            TapelineError: no token can be chosen.
        """
        prompt = len(self.request.prompt)
        if self.fed < prompt:
            most = self.request.prompt_logprobs or 0
            self._logprobs.append(_token_event(int(self._tokens[self.fed]), prediction.logits(), most))
            return
        if self.fed == prompt:
            asked = self.request.prompt_logprobs is not None
            self._send(PromptEvent(self.reused, tuple(self._logprobs) if asked else None))
        self._next(prediction, _GRACE)

    def begin(self) -> None:
        """Has its constraint compute the first mask while the prompt is run."""
        if self._constraint is not None:
            self._constraint.ready(0.0)

    def resume(self, seconds: float) -> None:
        """Goes on if it waits for its constraint, for some seconds at most.

        Raises:
            TapelineError: no token can be chosen.
        """
        if self._unsettled:
            self._settle(seconds)
        elif self._held is not None:
            self._next(self._held, seconds)

    def end(self, reason: Reason, error: TapelineError | None = None, *, end_token: TokenEvent | None = None) -> None:
        """Ends the answer and says so; does nothing if it has ended."""
        if self.reason is None:
            self.reason = reason
            self._held, self._unsettled = None, False
            if self._constraint is not None:
                self._constraint.close()
            self._send(EndEvent(reason, error, len(self.request.prompt), self.generated, self.reused, end_token))

    def _next(self, prediction: Prediction, seconds: float) -> None:
        """Chooses the next token and sends it, or keeps the prediction until the constraint has its mask."""
        if self._constraint is not None and not self._constraint.ready(seconds):
            if self._held is None:
                self._held = KnownLogits(prediction.logits().copy())
            return
        self._held = None
        self._go_on(self._choose(prediction), prediction)

    def _choose(self, prediction: Prediction) -> int:
        prompt = len(self.request.prompt)
        allowed = None if self._constraint is None else self._constraint.allowed(self._vocabulary)
        token_id = self._sampler.choose(prediction, self.tokens, prompt_tokens=prompt, allowed=allowed)
        self._tokens[self._known] = self._keys[self._known] = token_id
        self._known += 1
        return token_id

    def _go_on(self, token_id: int, prediction: Prediction) -> None:
        """Sends a new token, and ends with it if it is the last."""
        self._limit = self._stop.reason(token_id, self.generated)
        if self._limit == "eos":
            self.end("eos", end_token=self._event(token_id, prediction))
            return
        if self._constraint is not None:
            self._constraint.post(token_id)
        self._send(self._event(token_id, prediction))
        self._settle(0.0)

    def _settle(self, seconds: float) -> None:
        """Ends the answer if its last token was the last, which the constraint may have to find out."""
        self._unsettled = self._constraint is not None and not self._constraint.settled(seconds)
        if self._unsettled:
            return
        finished = self._constraint is not None and self._constraint.finished
        reason = "eos" if finished else self._limit
        if reason:
            self.end(reason)

    def _event(self, token_id: int, prediction: Prediction) -> TokenEvent:
        most = self.request.logprobs
        event = TokenEvent(token_id) if most is None else _token_event(token_id, prediction.logits(), most)
        return dataclasses.replace(event, prediction=unguarded(prediction)) if self.request.predictions else event

    def _send(self, event: Event) -> None:
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001 - whatever the listener raises, it listens no more
            self.cancelled = True


def _token_event(token_id: int, logits: np.ndarray, most: int) -> TokenEvent:
    """Returns a token with its log probability and the ``most`` likeliest tokens, the lowest ids first among equals.

    Args:
        token_id: the token.
        logits: f32 [V], as the model gave them.
        most: number of alternatives.
    """
    highest = logits.max()
    rest = float(np.log(np.exp(logits - highest).sum(dtype=np.float64)))

    def logprob(index: int) -> float:
        return float(logits[index]) - float(highest) - rest

    order = _largest(logits, min(most, logits.size))
    return TokenEvent(token_id, logprob(token_id), tuple((int(i), logprob(i)) for i in order))


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Returns the indices of the largest values, largest first, the lowest of equal ones first."""
    if count == 0:
        return np.zeros(0, np.int64)
    edge = np.partition(values, -count)[-count]
    candidates = np.flatnonzero(values >= edge)
    return candidates[np.argsort(-values[candidates], kind="stable")][:count]
