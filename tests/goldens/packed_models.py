"""The models whose logits are compared, with packed weights and without, beside llama.cpp's."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import safetensors.numpy

from tapeline.demo import write_demo_checkpoint
from tests.goldens._case_types import GoldenCase
from tests.goldens.cases import CASES
from tests.goldens.weights import unit_values, weight_shapes

_SIZES: Final = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "num_hidden_layers": 4,
    "vocab_size": 512,
}


class PackedModel(NamedTuple):
    """A Llama, all of whose matrices can be packed.

    Attributes:
        case: its configuration.
        weights: of its checkpoint.
    """

    case: GoldenCase
    weights: Mapping[str, np.ndarray]


def packed_models(directory: Path) -> dict[str, PackedModel]:
    """The trained model, and a larger one as it is before training, with weights of standard deviation 0.02.

    Args:
        directory: takes the demo model's files.
    """
    write_demo_checkpoint(directory)
    llama = CASES["llama_gqa"]
    config = json.loads((directory / "config.json").read_text())
    wide = dataclasses.replace(llama, name="untrained", config={**llama.config, **_SIZES})
    return {
        "demo": PackedModel(
            dataclasses.replace(llama, name="demo", config=config),
            safetensors.numpy.load_file(directory / "model.safetensors"),
        ),
        "untrained": PackedModel(wide, {key: _weight(key, shape) for key, shape in weight_shapes(wide.config).items()}),
    }


def super_block_model() -> PackedModel:
    """The larger model with feed-forward layers of whole super-blocks: 768 inputs."""
    llama = CASES["llama_gqa"]
    config = {**llama.config, **_SIZES, "intermediate_size": 768}
    weights = {key: _weight(key, shape) for key, shape in weight_shapes(config).items()}
    return PackedModel(dataclasses.replace(llama, name="super-blocks", config=config), weights)


def _weight(key: str, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    return unit_values(key, shape, 1) * np.float32(0.02 * np.sqrt(3))


def nmse(result: np.ndarray, expected: np.ndarray) -> float:
    """sum (found - expected)^2 / sum expected^2, in f64."""
    difference = result.astype(np.float64) - expected
    return float((difference**2).sum() / (expected.astype(np.float64) ** 2).sum())
