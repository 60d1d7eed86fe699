"""Requests to the engine, and the events that answer them. Tokens only: text is the server's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from generation import Prediction, SamplingConfig
from generation.engine._pictures import PromptPicture
from lang_core import ConfigError, TapelineError, checked_choices


class TokenConstraint(Protocol):
    """Rule that says which tokens may come next in one answer, such as a grammar."""

    @property
    def finished(self) -> bool:
        """True once only an end token may follow. The engine ends the answer then."""
        ...

    def mask(self, out: np.ndarray) -> None:
        """Sets ``out`` bool [V] to True for each token that may come next, and to False for all others."""
        ...

    def accept(self, token_id: int) -> None:
        """Goes on with a token that was chosen."""
        ...


@runtime_checkable
class AwaitedConstraint(Protocol):
    """Constraint with masks that are computed elsewhere: meanwhile the engine continues with other answers.

    It has the methods of ``TokenConstraint`` as well.
    """

    def post(self, token_id: int) -> None:
        """Continues with a chosen token, without waiting for its masks."""
        ...

    def settled(self, seconds: float) -> bool:
        """Returns True once ``finished`` returns at once; waits up to some seconds for it."""
        ...

    def ready(self, seconds: float) -> bool:
        """Returns True once ``mask`` returns at once, or raises; waits up to some seconds for it."""
        ...

    def close(self) -> None:
        """Frees the computation of the masks. Called when the answer has ended; nothing else is called after that."""
        ...


@dataclass(frozen=True, slots=True)
class RowAdapter:
    """Adapter of a model that one request's rows have.

    Attributes:
        number: number of the adapter in the runner, from 1 on.
        key: digest of its contents: prefixes are reused among requests with the same adapter alone.
    """

    number: int
    key: str


@checked_choices
@dataclass(frozen=True, kw_only=True)
class TokenRequest:
    """One prompt, and how it is to be answered.

    Attributes:
        prompt: token ids; at least one.
        pictures: pictures in the places of some of the tokens, in order.
        sampling: settings of sampling, with the request's own seed.
        max_new_tokens: largest number of new tokens.
        ends: tokens that end the answer; they are not sent.
        ignore_eos: whether to go on after one of ``ends``, and to send it. A constraint's end ends the answer anyway.
        constraint: rule of which tokens may come next; None without.
        logprobs: number of most likely tokens to send with each new token, beside its own log probability; None for no
            log probabilities. They are the log softmax of the model's logits, before any step of sampling.
        prompt_logprobs: the same for the prompt's tokens; the prompt is then run by single steps, or by calls of
            ``verify_row`` of an invariant model, and nothing is reused.
        deadline: seconds from now after which the answer is cut off; None for the engine's default.
        client: who asks. Clients are served in turn.
        cache_salt: the request may reuse prefixes of requests with the same salt. None reuses nothing, and
            keeps nothing for others.
        request_id: name in logs.
        predictions: whether each token comes with the prediction that it was chosen from.
        adapter: adapter of the model; None for the model alone.

    Raises:
        ConfigError: a number is out of its range.
    """

    prompt: Sequence[int]
    sampling: SamplingConfig
    max_new_tokens: int
    ends: frozenset[int] = frozenset()
    ignore_eos: bool = False
    constraint: TokenConstraint | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    deadline: float | None = None
    client: str = ""
    cache_salt: str | None = ""
    request_id: str = ""
    pictures: Sequence[PromptPicture] = ()
    predictions: bool = False
    adapter: RowAdapter | None = None

    def __post_init__(self) -> None:
        _require("max_new_tokens", self.max_new_tokens, 1)
        _require("logprobs", self.logprobs, 0)
        _require("prompt_logprobs", self.prompt_logprobs, 0)
        if self.deadline is not None and not self.deadline > 0:
            raise ConfigError(f"deadline={self.deadline!r} is out of range: give seconds, more than 0")


def _require(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ConfigError(f"{name}={value!r} is out of range: give an integer of at least {least}")


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """A token.

    Attributes:
        token_id: the token.
        logprob: its log probability; None if none were asked for.
        alternatives: the most likely tokens in its place with their log probabilities, likeliest first.
        prediction: the prediction it was chosen from; None if it was not asked for.
    """

    token_id: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()
    prediction: Prediction | None = None


@dataclass(frozen=True, slots=True)
class PromptEvent:
    """The prompt has been run. Once per request, before its first token.

    Attributes:
        reused: tokens of it that were not run, for their entries were there.
        logprobs: its tokens with their log probabilities, None in place of the first one; None if not asked for.
    """

    reused: int
    logprobs: tuple[TokenEvent | None, ...] | None = None


@checked_choices
@dataclass(frozen=True, slots=True)
class EndEvent:
    """The answer has ended. Once per request, always last.

    Attributes:
        reason: why.
        error: error that ended it; None unless the reason is "error".
        prompt_tokens: tokens of the prompt.
        generated_tokens: new tokens that were chosen, with an end token that was not sent.
        reused_tokens: tokens of the prompt that were not run.
        end_token: end token that was chosen last, and not sent; None if something else ended the answer.
    """

    reason: Literal["eos", "length", "cancelled", "deadline", "error"]
    error: TapelineError | None
    prompt_tokens: int
    generated_tokens: int
    reused_tokens: int
    end_token: TokenEvent | None = None


Event = PromptEvent | TokenEvent | EndEvent
"""Event of a request: of its prompt, of a token, or its end."""
OnEvent = Callable[[Event], None]
"""Receiver of a request's events, on the engine's thread."""
