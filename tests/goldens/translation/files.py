"""Reads answers of transformers' ``generate`` to texts, and writes the tiny models that gave them."""

import base64
import json
from pathlib import Path
from typing import Any

import safetensors.numpy

from tests.goldens.encoders.files import random_encoder_weights

DATA = Path(__file__).parent / "data" / "answers.json"
MARIAN = Path(__file__).parent / "data" / "marian.json"


def read_answers() -> dict[str, Any]:
    """Returns the models by name, each with its files, its shapes and its answers."""
    return json.loads(DATA.read_text(encoding="utf-8"))["models"]


def write_marian_tokenizer(directory: Path) -> dict[str, Any]:
    """Writes the files of a Marian's tokenizer into a directory, and returns what transformers makes of texts."""
    golden = json.loads(MARIAN.read_text(encoding="utf-8"))
    for name, content in golden["files"].items():
        (directory / name).write_bytes(base64.b64decode(content))
    return golden


def write_model(directory: Path, model: dict[str, Any]) -> None:
    """Writes a model's files into an empty directory; no weight is stored."""
    for name, text in model["files"].items():
        (directory / name).write_text(text, encoding="utf-8")
    weights = random_encoder_weights(model["shapes"], model["seed"])
    safetensors.numpy.save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
