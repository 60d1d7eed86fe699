"""Compute the scores of labels of pictures with transformers' pipeline: run by hand, outside Bazel (see ../README.md).

    python -m tests.goldens.pictures.make_zero_shot_goldens

SigLIP's own tokenizer, which takes no punctuation, is stood for by a text that has none.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import safetensors
import transformers
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from tests.goldens.pictures.cases import CLASSIFIED, PICTURES
from tests.goldens.pictures.files import picture_bytes
from tests.goldens.pictures.zero_shot import (
    HYPOTHESES,
    LABELS,
    SCORES,
    SETTINGS,
    write_zero_shot_checkpoint,
    zero_shot_case,
)

_PROCESSORS = {"clip": CLIPImageProcessorPil, "siglip": SiglipImageProcessorPil}


def main() -> int:
    """Make the file."""
    transformers.logging.set_verbosity_error()
    rows = {name: _scores(name) for name in SETTINGS}
    head = {"transformers": transformers.__version__}
    SCORES.write_text(json.dumps({**head, **rows}, indent=1) + "\n")
    return 0


def _shapes(name: str) -> dict[str, list[int]]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(dict(zero_shot_case(name).config)))
        config = transformers.AutoConfig.from_pretrained(folder)
        transformers.AutoModel.from_config(config).save_pretrained(folder)
        with safetensors.safe_open(Path(folder) / "model.safetensors", "np") as file:
            return {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118


def _scores(name: str) -> dict[str, Any]:
    shapes = _shapes(name)
    with tempfile.TemporaryDirectory() as folder:
        write_zero_shot_checkpoint(Path(folder), name, shapes)
        settings = {key: value for key, value in SETTINGS[name].items() if key != "image_processor_type"}
        classify = transformers.ZeroShotImageClassificationPipeline(
            model=transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval(),
            tokenizer=transformers.PreTrainedTokenizerFast.from_pretrained(folder),
            image_processor=_PROCESSORS[name](**settings),
        )
        rows: dict[str, Any] = {}
        for picture in CLASSIFIED:
            (Path(folder) / "picture").write_bytes(picture_bytes(picture, PICTURES[picture]))
            for hypothesis in HYPOTHESES:
                labels = [_plain(label, name) for label in LABELS]
                form = _plain(hypothesis, name)
                made = classify(str(Path(folder) / "picture"), candidate_labels=labels, hypothesis_template=form)
                scores = {row["label"]: row["score"] for row in made}
                rows[f"{picture} {hypothesis}"] = [scores[label] for label in labels]
    print(name, rows)
    return {"shapes": shapes, "scores": rows}


def _plain(text: str, name: str) -> str:
    return text if name == "clip" else "".join(letter for letter in text if letter not in ".,!")


if __name__ == "__main__":
    sys.exit(main())
