"""Compute the golden file of CTC models with transformers' pipeline: run by hand, outside Bazel (see ../README.md).

    python -m tests.goldens.speech.make_ctc_goldens

Each case is checked while it is made: every choice of a character is clear.
"""

import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
import transformers

from tests.goldens.speech.ctc_cases import CTC_CASES, SECONDS, CtcCase, write_ctc_checkpoint
from tests.goldens.speech.files import DATA, sound

_CLEAR_MARGIN = 2e-3
_SEEDS = 400
_WORDS = 3


def main() -> int:
    """Make the file."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    head = {
        "script": "tests/goldens/speech/make_ctc_goldens.py",
        "versions": {
            "numpy": np.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(_clear(name, case))}" for name, case in CTC_CASES.items())
    (DATA / "ctc.json").write_text(f'{json.dumps(head)[:-1]},\n "cases": {{\n{lines}\n }}\n}}\n')
    return 0


def _clear(name: str, case: CtcCase) -> dict[str, Any]:
    """The results with the first seed whose choices are clear."""
    shapes = _shapes(case)
    for seed in range(_SEEDS):
        result, margin = _transcribed(case, shapes, seed)
        if margin > _CLEAR_MARGIN and len(result["chunks"]) >= _WORDS:
            print(f"{name}: seed {seed}, margin {margin:.2g}: {result['text']!r}")
            words = [[chunk["text"], *chunk["timestamp"]] for chunk in result["chunks"]]
            return {"shapes": shapes, "seed": seed, "text": result["text"], "words": words}
    raise RuntimeError(f"{name}: no seed below {_SEEDS} is clear")


def _shapes(case: CtcCase) -> dict[str, list[int]]:
    """Keys and shapes that transformers stores of such a model."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "config.json").write_text(json.dumps(case.config()))
        config = transformers.AutoConfig.from_pretrained(name)
        transformers.AutoModelForCTC.from_config(config).save_pretrained(name)
        with safetensors.safe_open(Path(name) / "model.safetensors", "np") as file:
            return {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118


def _transcribed(case: CtcCase, shapes: dict[str, list[int]], seed: int) -> tuple[dict[str, Any], float]:
    with tempfile.TemporaryDirectory() as folder:
        write_ctc_checkpoint(Path(folder), case, shapes, seed)
        model = transformers.AutoModelForCTC.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        pipeline = transformers.AutomaticSpeechRecognitionPipeline(
            model=model.eval(),
            tokenizer=transformers.Wav2Vec2CTCTokenizer.from_pretrained(folder),
            feature_extractor=transformers.Wav2Vec2FeatureExtractor.from_pretrained(folder),
            device=torch.device("cpu"),
        )
    margins: list[float] = []

    def note(module: Any, inputs: Any, output: Any) -> None:
        top = output.logits.topk(2).values
        margins.append(float((top[..., 0] - top[..., 1]).min()))

    model.register_forward_hook(note)
    samples = sound(case.sound)[: case.samples].copy()
    return pipeline(samples, chunk_length_s=SECONDS, return_timestamps="word"), min(margins)


if __name__ == "__main__":
    sys.exit(main())
