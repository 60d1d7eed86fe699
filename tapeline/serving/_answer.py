"""The answer to one request, from its queue to its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

import numpy as np

from lang_core import TapelineError
from tapeline.serving._errors import ConstraintError
from tapeline.serving._logprobs import token_event
from tapeline.serving._pictures import PromptSight, content_keys
from tapeline.serving._request import EndEvent, Event, OnEvent, PromptEvent, TokenEvent, TokenRequest
from transformer_core.generation import Prediction, Sampler, StopRule

Reason = Literal["eos", "length", "cancelled", "deadline", "error"]


class Answer:
    """Tokens of one request, and what was said of them.

    Attributes:
        request: the request.
        expires: time after which it ends where it is; None for never.
        sight: what is known of the prompt's pictures.
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
        self._vocabulary: Final = vocabulary
        self._sampler: Final = Sampler(request.sampling, vocabulary)
        ignore_eos = request.ignore_eos and request.constraint is None
        self._stop: Final = StopRule(request.ends, request.max_new_tokens, ignore_eos)
        self._tokens: Final = np.zeros(prompt + request.max_new_tokens, np.int64)
        self._tokens[:prompt] = request.prompt
        self._keys: Final = content_keys(self._tokens, request.pictures) if request.pictures else self._tokens
        self.sight: Final = PromptSight(request.pictures, request.cache_salt)
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
    def keys(self) -> np.ndarray:
        """Numbers by which prefixes are compared, i64 [P + generated]: tokens, and of pictures their content."""
        return self._keys[: self._known]

    @property
    def prompt_keys(self) -> np.ndarray:
        """The same of the prompt, i64 [P]."""
        return self._keys[: len(self.request.prompt)]

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
        return self.fed < len(self.request.prompt) and self.request.prompt_logprobs is None

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
            self._logprobs.append(token_event(int(self._tokens[self.fed]), prediction.logits(), most))
            return
        if self.fed == prompt:
            asked = self.request.prompt_logprobs is not None
            self._send(PromptEvent(self.reused, tuple(self._logprobs) if asked else None))
        self._go_on(self._choose(prediction), prediction)

    def end(self, reason: Reason, error: TapelineError | None = None) -> None:
        """Ends the answer and says so; does nothing if it has ended."""
        if self.reason is None:
            self.reason = reason
            self._send(EndEvent(reason, error, len(self.request.prompt), self.generated, self.reused))

    def _choose(self, prediction: Prediction) -> int:
        prompt = len(self.request.prompt)
        allowed = self._allowed()
        token_id = self._sampler.choose(prediction, self.tokens, prompt_tokens=prompt, allowed=allowed)
        self._tokens[self._known] = self._keys[self._known] = token_id
        self._known += 1
        return token_id

    def _go_on(self, token_id: int, prediction: Prediction) -> None:
        """Sends a new token, and ends with it if it is the last."""
        reason = self._stop.reason(token_id, self.generated)
        if reason != "eos":
            finished = self._accept(token_id)
            self._send(self._event(token_id, prediction))
            reason = "eos" if finished else reason
        if reason:
            self.end(reason)

    def _allowed(self) -> np.ndarray | None:
        """Returns the tokens bool [V] that the constraint allows; None without one."""
        constraint = self.request.constraint
        if constraint is None:
            return None
        allowed = np.zeros(self._vocabulary, np.bool_)
        with _constrained("mask"):
            constraint.mask(allowed)
        if not allowed.any():
            raise ConstraintError("the request's constraint allows no token here: give one that an answer can satisfy")
        return allowed

    def _accept(self, token_id: int) -> bool:
        """Tells the constraint of a new token, and returns whether it wants no more."""
        constraint = self.request.constraint
        if constraint is None:
            return False
        with _constrained("accept"):
            constraint.accept(token_id)
            return constraint.finished

    def _event(self, token_id: int, prediction: Prediction) -> TokenEvent:
        most = self.request.logprobs
        return TokenEvent(token_id) if most is None else token_event(token_id, prediction.logits(), most)

    def _send(self, event: Event) -> None:
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001 - whatever the listener raises, it listens no more
            self.cancelled = True


@contextmanager
def _constrained(call: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ConstraintError(
            f"the request's constraint failed in {call} ({type(error).__name__}: {error}): give another"
        ) from error
