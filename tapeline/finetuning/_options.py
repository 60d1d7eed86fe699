"""Options of a fine-tuning, checked before any work."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, get_args

from lang_core import ConfigError, InputError, MeshShape, checked_choices

Schedule = Literal["constant", "linear", "cosine"]
"""Schedule of the learning rate behind the warm-up."""
SCHEDULES: Final = get_args(Schedule)
"""Names of the schedules of the learning rate."""

_FULL_RATE: Final = 2e-5
_ADAPTER_RATE: Final = 2e-4
# Options that change no bit of the result.
_OF_THE_RUN: Final = ("save_every",)


@checked_choices
@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Options of a fine-tuning.

    Attributes:
        lora: rank of a LoRA adapter; every parameter is trained if None.
        lora_alpha: numerator of the adapter's scaling ``lora_alpha / lora``; twice the rank if None.
        lora_targets: last parts, or whole names, of the linear layers that are adapted, under the checkpoint's names;
            all but the head if empty.
        steps: number of steps.
        batch: sequences per step, or per accumulated part of one.
        accumulate: number of micro-batches per step (gradient accumulation).
        sequence: tokens per sequence that are predicted, T.
        learning_rate: largest rate; 2e-4 with LoRA and 2e-5 without if None.
        warmup: first steps in which the rate rises; a tenth of the steps, 100 at most, if None.
        schedule: shape of the rates after that.
        weight_decay: decay of matrices per step, relative to the rate.
        largest_norm: bound of the gradients' norm; 0 for none.
        dtype: dtype of activations, and of weights if they are computed with; masters and moments are f32.
        mesh: devices, such as ``dp=2`` or ``fsdp=2,tp=2``; one if None.
        seed: seed of the order of the data and of the adapter's first values.
        save_every: steps between two checkpoints.

    Raises:
        ConfigError: a number is out of range, or the mesh is none.
    """

    lora: int | None = None
    lora_alpha: float | None = None
    lora_targets: tuple[str, ...] = ()
    steps: int = 100
    batch: int = 4
    accumulate: int = 1
    sequence: int = 256
    learning_rate: float | None = None
    warmup: int | None = None
    schedule: Schedule = "linear"
    weight_decay: float = 0.0
    largest_norm: float = 1.0
    dtype: Literal["f32", "bf16"] = "f32"
    mesh: str | None = None
    seed: int = 0
    save_every: int = 50

    def __post_init__(self) -> None:
        for name in ("lora", "batch", "accumulate", "sequence", "save_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value}: give a number of at least 1")
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed}: give a number of at least 0")
        if self.lora_alpha is not None and not self.lora_alpha > 0:
            raise ConfigError(f"lora_alpha={self.lora_alpha}: give a number above 0")
        if self.lora is None and (self.lora_alpha is not None or self.lora_targets):
            name = "lora_alpha" if self.lora_alpha is not None else "lora_targets"
            raise ConfigError(f"{name}={getattr(self, name)}: is of an adapter: give its rank, lora, too")
        self._check_optimizer()
        self.mesh_shape()

    def _check_optimizer(self) -> None:
        """Refuses the same values as ``OptimizerOptions`` of run_jax, without loading it."""
        for name, value, is_valid, expected in (
            ("steps", self.steps, self.steps >= 1, "at least 1"),
            ("learning_rate", self.rate, 0 < self.rate < 10, "above 0 and below 10"),
            ("warmup", self.warmup_steps, 0 <= self.warmup_steps <= self.steps, f"0 to steps ({self.steps})"),
            ("weight_decay", self.weight_decay, 0 <= self.weight_decay < 10, "at least 0 and below 10"),
            ("largest_norm", self.largest_norm, self.largest_norm >= 0, "at least 0"),
        ):
            if not is_valid:
                raise ConfigError(f"{name}={value}: give a number {expected}")

    @property
    def alpha(self) -> float:
        """Numerator of the adapter's scaling."""
        return float(2 * (self.lora or 0) if self.lora_alpha is None else self.lora_alpha)

    @property
    def rate(self) -> float:
        """Largest learning rate."""
        if self.learning_rate is not None:
            return self.learning_rate
        return _FULL_RATE if self.lora is None else _ADAPTER_RATE

    @property
    def warmup_steps(self) -> int:
        """First steps in which the rate rises."""
        return min(self.steps // 10, 100) if self.warmup is None else self.warmup

    def mesh_shape(self) -> MeshShape | None:
        """Returns the mesh; None for one device."""
        return None if self.mesh is None else MeshShape.parse(self.mesh)

    def record(self) -> dict[str, Any]:
        """Returns the options that decide about the result, as JSON values."""
        fields = dataclasses.asdict(self)
        return {name: _plain(value) for name, value in fields.items() if name not in _OF_THE_RUN}


class TrainKeywords(TypedDict, total=False):
    """Fields of ``TrainOptions`` as keyword arguments."""

    lora: int | None
    lora_alpha: float | None
    lora_targets: tuple[str, ...]
    steps: int
    batch: int
    accumulate: int
    sequence: int
    learning_rate: float | None
    warmup: int | None
    schedule: Schedule
    weight_decay: float
    largest_norm: float
    dtype: Literal["f32", "bf16"]
    mesh: str | None
    seed: int
    save_every: int


def check_same(before: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Checks that a training goes on as it began.

    Raises:
        InputError: it does not; names the option, and both values.
    """
    for name in (*before, *(name for name in now if name not in before)):
        if before.get(name) != now.get(name):
            raise InputError(
                f"resume: {where} was begun with {name}={_shown(before.get(name))}, now it is "
                f"{name}={_shown(now.get(name))}: give the same, or begin anew without `resume`"
            )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
