"""Trains the demo model, on the device local-task.

`weights.safetensors` beside this file is what comes out, with the loss of each step in `docs/images/demo_training.svg`:

    ./bazelw run //tools/demo:train

It takes two minutes on two cores, half a minute of them the compiler's. The text is `corpus.txt`, written for this
repository, and `passages.txt`: passages of works whose authors died long ago (Lincoln, Carroll, Austen, Dickens,
Melville, Shakespeare, Blake, Jefferson, Doyle, Taylor, and Aesop by Jacobs), which are in the public domain.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import ml_dtypes
import numpy as np
from tokenizers import Tokenizer

from lang_core import TensorSpec
from run_iree import target_named
from tapeline.analysis.drawing import write_loss_curve
from tapeline.cli import run, say
from tapeline.demo import BOS_ID, CONFIG, EOS_ID, TOKENIZER
from tapeline.finetuning.step import Schedule, Windows, open_step, train, training_step
from tools.demo.initial_weights import initial_weights
from transformer_core.checkpoints import write_safetensors
from transformer_core.models import DecoderConfig, DecoderLM

_BATCH: Final = 8
_SEQUENCE: Final = 128
_SCHEDULE: Final = Schedule(steps=700, peak=0.008)
# Not the present machine's CPU, so that all machines that can run it compute the same bits.
_CPU: Final = "x86-64-v3"
_HERE: Final = Path(__file__).parent


def documents() -> list[list[int]]:
    """The token ids of each paragraph."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    texts = [(_HERE / name).read_text(encoding="utf-8") for name in ("corpus.txt", "passages.txt")]
    paragraphs = [paragraph.strip() for text in texts for paragraph in text.split("\n\n")]
    return [tokenizer.encode(paragraph, add_special_tokens=False).ids for paragraph in paragraphs]


def trained_weights(folder: Path) -> tuple[dict[str, np.ndarray], list[float]]:
    """The weights after training, rounded so that bf16 can hold them, and the loss of each step."""
    model = DecoderLM(DecoderConfig.from_hf(CONFIG))
    windows = Windows(documents(), BOS_ID, EOS_ID, _SEQUENCE + 1)
    specs = {path: parameter.spec for path, parameter in model.named_parameters()}
    say(f"{sum(spec.size for spec in specs.values())} parameters, {windows.tokens} tokens; compiling the step")
    step = training_step(model, _BATCH, _SEQUENCE)
    with open_step(step, folder, target_named("llvm-cpu", cpu=_CPU), "local-task") as session:
        weights, losses = train(
            session, dict(initial_weights(specs)), lambda: windows.draw(_BATCH), _SCHEDULE, _progress
        )
    rounded = {path: array.astype(ml_dtypes.bfloat16).astype(np.float32) for path, array in weights.items()}
    return rounded, losses


def _progress(step: int, loss: float) -> None:
    if step == 1 or step % 50 == 0:
        say(f"step {step} of {_SCHEDULE.steps}: loss {loss:.3f}")


def _store(weights: Mapping[str, np.ndarray], path: Path) -> None:
    specs = {name: TensorSpec(array.shape, "f32") for name, array in weights.items()}
    write_safetensors(path, specs, lambda name, spec: [weights[name]], metadata={"format": "pt"})


def main() -> None:
    """Writes weights and curve to the source tree, which Bazel names in an environment variable."""
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", Path(__file__).parents[2]))
    with tempfile.TemporaryDirectory(prefix="tapeline-train-") as folder:
        weights, losses = trained_weights(Path(folder))
    _store(weights, root / "tapeline" / "demo" / "weights.safetensors")
    pictures = root / "docs" / "images"
    pictures.mkdir(exist_ok=True)
    write_loss_curve(
        losses, pictures / "demo_training.svg", "The demo model, trained by //tools/demo:train on local-task"
    )


if __name__ == "__main__":
    run(main)
