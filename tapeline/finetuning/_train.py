"""Fine-tuning: a checkpoint and data in, an adapter or a checkpoint out."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import TensorSpec, VerificationError
from run_jax.training import TrainingCheckpoints, device_names, is_writer, wait_for_all
from tapeline.analysis.drawing import write_loss_curve
from tapeline.bundle import sha256_of, typed_refusals
from tapeline.cli import VERSION, Progress, ProgressEvent, no_progress
from tapeline.exporting import ModelSource, open_source
from tapeline.finetuning._options import TrainOptions
from tapeline.finetuning._output import write_adapter, write_checkpoint
from tapeline.finetuning._plan import TrainingPlan, make_plan
from tapeline.finetuning._workplace import REPORT, Workplace
from transformer_core.models.gguf import GgufModel

_LINES: Final = 100


def run_training(
    model: str, data: Path, output: Path, options: TrainOptions, *, resume: bool, progress: Progress, base: Path
) -> list[float]:
    """Fine-tunes a model, writes the result, and returns the loss of each step; see ``train``."""
    workplace = Workplace(output)
    workplace.check()
    with open_source(model, base / model, True, progress) as source:
        plan = make_plan(source, data, options)
        record = {**options.record(), "model": source.identity, "data": sha256_of(data)}
        progress = progress if is_writer() else no_progress
        _tell(plan, progress)
        with typed_refusals(workplace.output, workplace.directory), _working(workplace, record, resume):
            losses = _run(plan, options, workplace, source, progress)
    if is_writer():
        with typed_refusals(workplace.output, workplace.directory):
            workplace.publish()
    wait_for_all("published")
    return losses


@contextlib.contextmanager
def _working(workplace: Workplace, record: dict[str, Any], resume: bool) -> Iterator[None]:
    """Makes the directory in one process, and lets the others wait for it."""
    with workplace.opened(record, resume) if is_writer() else contextlib.nullcontext():
        wait_for_all("workplace")
        yield


def _run(
    plan: TrainingPlan, options: TrainOptions, workplace: Workplace, source: ModelSource, progress: Progress
) -> list[float]:
    trainer = plan.trainer
    state, frozen = trainer.start(plan.trainable), trainer.freeze(plan.frozen)
    with TrainingCheckpoints(workplace.checkpoints) as checkpoints:
        done = checkpoints.latest() or 0
        if done:
            state = checkpoints.restore(done, state)
            progress(ProgressEvent(f"resumed after step {done}"))
        losses = workplace.losses(done) if is_writer() else []
        for step in range(done + 1, options.steps + 1):
            batch = plan.windows.batch(step - 1, options.accumulate, options.batch)
            state, loss = trainer.step(state, frozen, *batch)
            if not np.isfinite(loss):
                raise VerificationError(f"training: the loss of step {step} is {loss}: lower the learning rate")
            losses.append(loss)
            if is_writer():
                workplace.note(step, loss)
            if step == options.steps or step % options.save_every == 0:
                checkpoints.save(step, state)
            if step in (1, options.steps) or step % -(-options.steps // _LINES) == 0:
                progress(ProgressEvent(f"step {step} of {options.steps}: loss {loss:.4f}"))
    trained = dict(trainer.collect(state))
    if is_writer():
        _write(plan, options, workplace, source, trained, losses)
    return losses


def _write(
    plan: TrainingPlan,
    options: TrainOptions,
    workplace: Workplace,
    source: ModelSource,
    trained: dict[str, np.ndarray],
    losses: list[float],
) -> None:
    result = workplace.result
    result.mkdir(exist_ok=True)
    if options.lora is not None:
        write_adapter(result, trained, plan.modules, options.lora, options.alpha, source.name)
    else:
        kept = None if isinstance(source.weights, GgufModel) else source.weights
        whole = {**plan.frozen, **trained}
        write_checkpoint(result, whole, plan.model, kept, source.directory, options.dtype)
    write_loss_curve(losses, result / "loss.svg", f"{Path(source.name).name}, {options.steps} steps")
    (result / REPORT).write_text(json.dumps(_report(plan, options, source, losses), indent=2) + "\n")


def _report(plan: TrainingPlan, options: TrainOptions, source: ModelSource, losses: list[float]) -> dict[str, Any]:
    platform, devices, processes = device_names()
    return {
        "tapeline": VERSION,
        "model": {"name": source.name, "family": plan.model.config.architecture, **source.facts},
        "options": options.record(),
        "data": {"tokens": plan.windows.tokens, "learned": plan.windows.learned, "windows": len(plan.windows)},
        "parameters": {"trained": _trained(plan), "of": _of_model(plan)},
        "modules": [module.name for module in plan.modules],
        "devices": {"platform": platform, "count": devices, "processes": processes},
        "losses": {"first": losses[0], "last": losses[-1], "least": min(losses)},
    }


def _tell(plan: TrainingPlan, progress: Progress) -> None:
    windows = plan.windows
    progress(
        ProgressEvent(
            f"{_trained(plan):,} parameters are trained of a model of {_of_model(plan):,}; {windows.tokens:,} tokens "
            f"in {len(windows):,} windows"
        )
    )


def _trained(plan: TrainingPlan) -> int:
    if plan.modules:
        return sum(array.size for array in plan.trainable.values())
    return sum(spec.size for spec in _specs(plan))


def _of_model(plan: TrainingPlan) -> int:
    return sum(spec.size for spec in _specs(plan))


def _specs(plan: TrainingPlan) -> list[TensorSpec]:
    return [parameter.spec for _, parameter in plan.model.named_parameters()]
