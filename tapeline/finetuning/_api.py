"""Training as one call; JAX is loaded by it."""

import os
from pathlib import Path
from typing import NamedTuple, Unpack

from lang_core import checked_choices, load_extra
from tapeline.cli import Progress, no_progress
from tapeline.finetuning._options import TrainKeywords, TrainOptions


class TrainedModel(NamedTuple):
    """Result of a training.

    Attributes:
        path: directory of the adapter, or of the checkpoint.
        losses: loss of each step, before it.
    """

    path: Path
    losses: list[float]


@checked_choices
def train(
    model: str | os.PathLike[str],
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    resume: bool = False,
    progress: Progress = no_progress,
    base: str | os.PathLike[str] = "",
    **options: Unpack[TrainKeywords],
) -> TrainedModel:
    """Fine-tunes a causal language model on JAX.

    ``output`` is complete afterwards, or unchanged. A training that was killed goes on with ``resume``, to the
    same bits.

    Args:
        model: Hugging Face directory, ``.gguf`` file, name of the hub, or ``demo``.
        data: text, or ``.jsonl`` with an object per line that has ``text`` or ``messages``.
        output: directory of the result: an adapter of PEFT with ``lora``, else a checkpoint.
        resume: True continues the training that was begun there, or starts a new one if there is none.
        progress: receives steps and warnings.
        base: directory that relative paths start from; the current one by default.
        **options: fields of ``TrainOptions``.

    Returns:
        The result.

    Raises:
        InputError: model, data, options or output are wrong, or do not fit each other.
        VerificationError: a loss is not a finite number.
        MissingPackageError: JAX, or a package for training, is not installed.
    """
    chosen = TrainOptions(**options)
    training = load_extra("tapeline.finetuning._train", "train", "training")
    place = Path(base)
    losses = training.run_training(
        os.fspath(model), place / data, place / output, chosen, resume=resume, progress=progress, base=place
    )
    return TrainedModel(place / output, losses)


def writes_output() -> bool:
    """Returns True in the one process of a training that writes its result.

    Raises:
        MissingPackageError: JAX, or a package for training, is not installed.
    """
    return load_extra("run_jax.training", "train", "training").is_writer()
