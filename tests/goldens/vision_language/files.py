"""Read the golden files in ``data/``, and write checkpoints of their cases. No weight is stored."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tests.goldens.byte_level import ADDED_FLAGS, byte_level_tokenizer
from tests.goldens.pictures.cases import PICTURES
from tests.goldens.pictures.files import picture_bytes
from tests.goldens.vision_language.cases import FIRST_SPECIAL, VisionLanguageCase
from tests.goldens.weights import unit_values

DATA = Path(__file__).parent / "data"
STEPS = 12


def read_vision_language_golden(name: str) -> list[dict[str, np.ndarray]]:
    """Per turn of a case: ``prompt`` ids, ``tokens`` [steps], ``logits`` [steps, V]."""
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as file:
        count = 1 + max(int(key.partition(".")[0]) for key in file.files)
        return [{kind: file[f"{turn}.{kind}"] for kind in ("prompt", "tokens", "logits")} for turn in range(count)]


def read_vision_language_manifest() -> dict[str, Any]:
    """Versions, and per case its digest and the keys and shapes that transformers stores."""
    return json.loads((DATA / "manifest.json").read_text())


def vision_language_weights(shapes: Mapping[str, list[int]], seed: int) -> dict[str, np.ndarray]:
    """f32 weights; those of norms lie around 1, attention is picky, pictures are as loud as words."""
    return {key: _tensor(key, tuple(shape), seed) for key, shape in shapes.items()}


def _tensor(key: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    unit = unit_values(key, shape, seed)
    if len(shape) == 1:
        return np.float32(0.5) * unit if key.endswith("bias") else np.float32(1.0) + np.float32(0.25) * unit
    if "embed" in key and len(shape) == 2:
        return unit * np.float32(np.sqrt(3.0 * 4.0 / shape[-1]))
    gain = 3.0 if "q_proj" in key or "k_proj" in key else 1.5
    return unit * np.float32(np.sqrt(3.0 * gain / np.prod(shape[1:])))


def write_vision_language_checkpoint(
    directory: Path, case: VisionLanguageCase, shapes: Mapping[str, list[int]], config: Mapping[str, Any] | None = None
) -> None:
    """Writes a case's files into an empty directory, as transformers stores one."""
    files = {
        "config.json": config or case.config,
        "preprocessor_config.json": case.preprocessor,
        "processor_config.json": case.processor,
        "tokenizer.json": _tokenizer(case.special),
        "tokenizer_config.json": {
            "chat_template": case.template,
            "eos_token": "<end_of_utterance>" if "<end_of_utterance>" in case.special else case.special[0],
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    }
    for name, fields in files.items():
        (directory / name).write_text(json.dumps(fields))
    weights = vision_language_weights(shapes, case.seed)
    safetensors.numpy.save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def turn_picture(name: str) -> bytes:
    """The file of a picture of a turn."""
    return picture_bytes(name, PICTURES[name])


def _tokenizer(special: tuple[str, ...]) -> dict[str, Any]:
    flags = {**ADDED_FLAGS, "special": True}
    added = [{"id": FIRST_SPECIAL + place, "content": name, **flags} for place, name in enumerate(special)]
    return byte_level_tokenizer(_byte_letters(), added)


def _byte_letters() -> dict[str, int]:
    """The alphabet of byte-level tokenizers: letters of Latin-1 for what is printed, others above."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return {chr(byte if byte in printed else next(others)): byte for byte in range(256)}
