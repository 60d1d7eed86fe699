"""The optimizer AdamW by optax, with its learning rates."""

import typing
from dataclasses import dataclass
from typing import Any, Final, Literal

import jax
import optax

from lang_core import ConfigError, checked_choices

Schedule = Literal["constant", "linear", "cosine"]
"""Schedule of the learning rate behind the warm-up."""
SCHEDULES: Final = typing.get_args(Schedule)
"""Names of the schedules of the learning rate."""


@checked_choices
@dataclass(frozen=True, slots=True)
class OptimizerOptions:
    """Settings of AdamW.

    Attributes:
        steps: number of steps of the whole training.
        learning_rate: largest rate.
        warmup: number of first steps in which the rate rises linearly to the largest.
        schedule: shape of the rates after that, down to 0 behind the last step, or constant.
        weight_decay: decay of a weight per step, relative to the rate; vectors (norms, biases) do not decay.
        beta1: decay factor of the first moment.
        beta2: decay factor of the second moment.
        eps: number that is added to the root of the second moment.
        largest_norm: bound of the norm of all gradients together, to which they are scaled down; 0 for none.

    Raises:
        ConfigError: a number is out of range.
    """

    steps: int
    learning_rate: float
    warmup: int = 0
    schedule: Schedule = "linear"
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    largest_norm: float = 1.0

    def __post_init__(self) -> None:
        for name, ok, wanted in (
            ("steps", self.steps >= 1, "at least 1"),
            ("learning_rate", 0 < self.learning_rate < 10, "above 0 and below 10"),
            ("warmup", 0 <= self.warmup <= self.steps, f"0 to steps ({self.steps})"),
            ("weight_decay", 0 <= self.weight_decay < 10, "at least 0 and below 10"),
            ("beta1", 0 <= self.beta1 < 1, "at least 0 and below 1"),
            ("beta2", 0 <= self.beta2 < 1, "at least 0 and below 1"),
            ("eps", self.eps > 0, "above 0"),
            ("largest_norm", self.largest_norm >= 0, "at least 0"),
        ):
            if not ok:
                raise ConfigError(f"{name}={getattr(self, name)}: give a number {wanted}")


def rate_schedule(options: OptimizerOptions) -> optax.Schedule:
    """Returns the learning rate as a function of the number of steps that are done: the first step's is that of 0."""
    peak, warmup = options.learning_rate, options.warmup
    after = options.steps - warmup
    falling: dict[str, Any] = {
        "constant": lambda: optax.constant_schedule(peak),
        "linear": lambda: optax.linear_schedule(peak, 0.0, max(after, 1)),
        "cosine": lambda: optax.cosine_decay_schedule(peak, max(after, 1)),
    }
    rest = falling[options.schedule]()
    if not warmup:
        return rest
    rising = optax.linear_schedule(peak / warmup, peak, max(warmup - 1, 1))
    return optax.join_schedules([rising, rest], [warmup])


def adamw(options: OptimizerOptions) -> optax.GradientTransformation:
    """Returns AdamW, behind the bound of the gradients' norm."""
    clip = optax.clip_by_global_norm(options.largest_norm) if options.largest_norm else optax.identity()
    return optax.chain(
        clip,
        optax.adamw(
            rate_schedule(options),
            b1=options.beta1,
            b2=options.beta2,
            eps=options.eps,
            weight_decay=options.weight_decay,
            mask=lambda tree: jax.tree.map(lambda leaf: leaf.ndim > 1, tree),
        ),
    )
