"""Checkpoints in shards: an index beside two safetensors files. An input is the index."""

import json
from pathlib import Path
from random import Random

import numpy as np

from lang_core import TensorSpec, f32
from tests.fuzz._files import written
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target
from transformer_core.checkpoints import SafetensorsCheckpoint, write_safetensors

_SHARDS = {"model-00001-of-00002.safetensors": ("a", "b"), "model-00002-of-00002.safetensors": ("c",)}
_SPEC = TensorSpec((2, 3), f32)
_VALUES = (
    *_SHARDS,
    "../a.safetensors",
    "/a.safetensors",
    "model.safetensors",
    "a",
    "b",
    "c",
    "a\\b.safetensors",
    ".safetensors",
)
_KEYS = ("weight_map", "metadata", "total_size", "a", "b", "c", "d")
_DIRECTORY: list[Path] = []


def _directory() -> Path:
    if not _DIRECTORY:
        directory = Path.cwd() / "checkpoint"
        directory.mkdir(exist_ok=True)
        for name, keys in _SHARDS.items():
            specs = dict.fromkeys(keys, _SPEC)
            write_safetensors(directory / name, specs, lambda _, spec: [np.ones(spec.shape, np.float32)])
        _DIRECTORY.append(directory)
    return _DIRECTORY[0]


def _seeds() -> list[bytes]:
    weight_map = {key: name for name, keys in _SHARDS.items() for key in keys}
    return [json.dumps({"metadata": {"total_size": 72}, "weight_map": weight_map}).encode()]


def _mutate(data: bytes, draw: Random) -> bytes:
    return mutate_json(data, draw, _VALUES, _KEYS)


def _run(data: bytes) -> bool:
    directory = _directory()
    written("checkpoint/model.safetensors.index.json", data)
    with SafetensorsCheckpoint(directory) as checkpoint:
        for key in [*checkpoint.keys()]:
            if checkpoint.read(key).shape != _SPEC.shape:
                raise AssertionError(f"{key}: read another tensor")
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
