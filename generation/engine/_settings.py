"""Settings of the engine."""

from dataclasses import dataclass
from typing import Final

from lang_core import ConfigError, checked_choices

_TARGET_ITL: Final = 0.3


@checked_choices
@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Settings of the engine.

    Attributes:
        max_waiting: requests that may wait for a row; one more is refused with ``BusyError``.
        deadline: seconds that a request may take which names none, with its time in the queue; None for unlimited.
        max_batched_tokens: maximum number of prompt tokens that are processed between two decode steps.
        target_itl: target inter-token latency of running sequences, in seconds. Prefill gets the time that the decode
            step leaves, estimated from earlier calls, but at least half of the target; each step makes at least one
            call. None for 0.3, or longer if calls of so few tokens would take much more time per token.
        largest_chunk: tokens of a prompt that one call may run; None for as many as the model takes. Smaller calls hold
            up running answers for a shorter time, and if a model is not invariant more prefixes can be reused.
        store_bytes: memory of the prefix store; 0 is off.
        block_tokens: tokens of a block of the prefix store.
        checkpoint_pieces: whether the prefix store keeps the states of a recurrent model behind every whole piece of a
            prompt; False keeps those before the last piece alone.
        decode_after_prompts: whether a tick that has run prompts to their ends makes a step of running answers, too.
            False suits a caller that takes tokens between ticks: it gets first tokens before the step.
        exact: whether every token has the bits of a single step: ``verify_row`` is used of invariant models alone.
            False uses it of every model, if tokens may round differently.
        picture_bytes: memory of embeddings of pictures that may be asked for again; 0 keeps none.

    Raises:
        ConfigError: a value is out of its range. The message names the setting.
    """

    max_waiting: int = 256
    deadline: float | None = 600.0
    max_batched_tokens: int = 512
    target_itl: float | None = None
    largest_chunk: int | None = None
    store_bytes: int = 256 << 20
    block_tokens: int = 32
    picture_bytes: int = 64 << 20
    checkpoint_pieces: bool = True
    decode_after_prompts: bool = True
    exact: bool = True

    def __post_init__(self) -> None:
        _require("max_waiting", self.max_waiting, self.max_waiting >= 1, "at least 1")
        _require("deadline", self.deadline, self.deadline is None or self.deadline > 0, "above 0, or None")
        _require("max_batched_tokens", self.max_batched_tokens, self.max_batched_tokens >= 1, "at least 1")
        _require("target_itl", self.target_itl, self.target_itl is None or self.target_itl >= 0, "at least 0")
        _require(
            "largest_chunk", self.largest_chunk, self.largest_chunk is None or self.largest_chunk >= 1, "at least 1"
        )
        _require("store_bytes", self.store_bytes, self.store_bytes >= 0, "at least 0 (0 is off)")
        _require("picture_bytes", self.picture_bytes, self.picture_bytes >= 0, "at least 0 (0 keeps none)")
        _require("block_tokens", self.block_tokens, self.block_tokens >= 1, "at least 1")

    def prompt_seconds(self, step_seconds: float) -> float:
        """Returns the time for prompts in a tick with a decode step of this duration."""
        target_itl = _TARGET_ITL if self.target_itl is None else self.target_itl
        return target_itl - min(step_seconds, target_itl / 2)


def _require(name: str, value: object, holds: bool, needed: str) -> None:
    if not holds:
        raise ConfigError(f"{name}={value!r} is out of range: give a value that is {needed}")
