"""Reads answers of transformers' ``generate`` to texts, and writes the tiny models that gave them."""

import json
from pathlib import Path
from typing import Any

import safetensors.numpy

from tests.goldens.encoders.files import random_encoder_weights

DATA = Path(__file__).parent / "data" / "answers.json"


def read_answers() -> dict[str, Any]:
    """Returns the models by name, each with its files, its shapes and its answers."""
    return json.loads(DATA.read_text(encoding="utf-8"))["models"]


def write_model(directory: Path, model: dict[str, Any]) -> None:
    """Writes a model's files into an empty directory; no weight is stored."""
    for name, text in model["files"].items():
        (directory / name).write_text(text, encoding="utf-8")
    weights = random_encoder_weights(model["shapes"], model["seed"])
    safetensors.numpy.save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
