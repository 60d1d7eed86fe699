"""Adapters: a configuration beside tensors. An input is a JSON object with the configuration, and shapes of tensors."""

import json
import math
from pathlib import Path
from random import Random

import numpy as np

from lang_core import TensorSpec
from tests.fuzz._files import written
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target
from transformer_core.checkpoints import Adapter, write_safetensors

_MODULE = "base_model.model.model.layers.0.self_attn"
_CONFIG = {
    "peft_type": "LORA",
    "base_model_name_or_path": "base",
    "r": 2,
    "lora_alpha": 4,
    "target_modules": ["q_proj", "v_proj"],
}
_TENSORS = {f"{_MODULE}.q_proj.lora_A.weight": [2, 8], f"{_MODULE}.q_proj.lora_B.weight": [6, 2]}
_VALUES = (
    *("LORA", "gaussian", "q_proj", "all-linear", "none", r"layers\.0\.", "(a|a)+b", "^model", [2, 8], [6, 2]),
    *({"q_proj": 2}, {r".*\.0\..*q_proj": 4}, {"embed_tokens": [0, 1]}, ["embed_tokens"]),
)
_KEYS = (
    *("r", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora", "fan_in_fan_out", "modules_to_save", "bias"),
    *("trainable_token_indices", "layers_to_transform", "init_lora_weights", "lora_alpha", "target_parameters"),
    *(f"{_MODULE}.v_proj.lora_A.weight", f"{_MODULE}.q_proj.lora_magnitude_vector", f"{_MODULE}.q_proj.weight"),
)
_MOST = 2**12  # elements of a tensor


def _seeds() -> list[bytes]:
    configs = [_CONFIG, {**_CONFIG, "rank_pattern": {"q_proj": 2}, "use_rslora": True}, {**_CONFIG, "r": 3}]
    return [json.dumps({"config": config, "tensors": _TENSORS}).encode() for config in configs]


def _mutate(data: bytes, draw: Random) -> bytes:
    return mutate_json(data, draw, _VALUES, _KEYS)


def _run(data: bytes) -> bool:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    if not isinstance(document, dict) or not isinstance(document.get("tensors"), dict):
        return False
    shapes = {name: shape for name, shape in document["tensors"].items() if name and _is_shape(shape)}
    directory = Path.cwd() / "adapter"
    directory.mkdir(exist_ok=True)
    specs = {name: TensorSpec(tuple(shape), "f32") for name, shape in shapes.items()}
    write_safetensors(directory / "adapter_model.safetensors", specs, lambda _, spec: [np.ones(spec.shape, np.float32)])
    written("adapter/adapter_config.json", json.dumps(document.get("config")).encode("utf-8", "surrogatepass"))
    with Adapter(directory) as adapter:
        for name in [*adapter.names]:
            adapter.nonfinite(name)
    return True


def _is_shape(shape: object) -> bool:
    sizes = shape if isinstance(shape, list) else [-1]
    return len(sizes) < 5 and all(type(size) is int and 0 <= size < 64 for size in sizes) and math.prod(sizes) <= _MOST


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
