"""The loop: a compiled training step, run on a device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compile_hlo import lower_module, text_file
from compile_hlo.emit import ExternalParameters
from lang_core import EntryPoint, VerificationError
from run_iree import Session, Target, compile_module


@dataclass(frozen=True, slots=True)
class Schedule:
    """Learning rates that rise linearly to a peak, and fall linearly to 0 behind the last step.

    Attributes:
        steps: number of steps.
        peak: largest rate.
        warmup: number of steps in which it rises.
    """

    steps: int
    peak: float
    warmup: int = 20

    def rate(self, step: int) -> float:
        """Returns the rate of a step; the first one is 1."""
        return self.peak * min(step / self.warmup, (self.steps + 1 - step) / max(self.steps + 1 - self.warmup, 1))


def open_step(step: EntryPoint, folder: Path, target: Target, device: str) -> Session:
    """Lowers a training step, streaming, compiles it and loads it.

    Args:
        step: the entry point.
        folder: folder for text and executable.
        target: the device's.
        device: device that it will run on.

    Returns:
        A session that knows which arguments are donated; close it.
    """
    source, executable = folder / "train.mlir", folder / "train.vmfb"
    with text_file(source) as file:
        (lowered,) = lower_module([step], file.write, ExternalParameters(), streaming=True).functions
    compile_module(source, executable, target)
    return Session(executable, device, signatures=[lowered.signature])


def train(
    session: Session,
    parameters: Mapping[str, np.ndarray],
    draw: Callable[[], np.ndarray],
    schedule: Schedule,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> tuple[dict[str, np.ndarray], list[float]]:
    """Runs all steps; parameters and moments stay on the device.

    Args:
        session: with the entry point ``train`` of ``training_step``.
        parameters: the initial values by path, in the model's order and shapes.
        draw: the token ids of a step, i32 [B, T + 1].
        schedule: how many steps, and how fast.
        on_step: is told each step's number and loss.

    Returns:
        The trained parameters, of the same shapes, and the loss of each step.

    Raises:
        VerificationError: a loss is not finite.
    """
    function = session.function("train")
    moments = [np.zeros(array.shape, np.float32) for _ in range(2) for array in parameters.values()]
    state = [session.upload(array) for array in (*parameters.values(), *moments)]
    losses: list[float] = []
    for step in range(1, schedule.steps + 1):
        result, *state = function(draw(), schedule.rate(step), step, *state)
        losses.append(float(result.numpy()))
        if not np.isfinite(losses[-1]):
            raise VerificationError(f"training: the loss of step {step} is {losses[-1]}: lower the learning rate")
        on_step(step, losses[-1])
    trained = dict(zip(parameters, state, strict=False))
    return {path: tensor.numpy() for path, tensor in trained.items()}, losses
