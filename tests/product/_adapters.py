"""LoRA adapters of PEFT's format, written by tests."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import safetensors.numpy


def write_adapter(
    directory: Path,
    shapes: Mapping[str, tuple[int, int]],
    *,
    rank: int,
    alpha: float,
    seed: int,
    modules: Sequence[str] = (),
) -> Path:
    """Writes an adapter with random matrices; returns its directory.

    Args:
        directory: new directory.
        shapes: shape [out, in] of each matrix of the model, by the name of its weight.
        rank: r of all modules.
        alpha: lora_alpha.
        seed: seed of the matrices.
        modules: ends of the names of the modules that it changes; all if empty.
    """
    random = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}
    for name, (outputs, inputs) in shapes.items():
        module = name.removesuffix(".weight")
        if modules and not module.endswith(tuple(modules)):
            continue
        key = f"base_model.model.{module}"
        tensors[f"{key}.lora_A.weight"] = random.standard_normal((rank, inputs), np.float32) * inputs**-0.5
        tensors[f"{key}.lora_B.weight"] = random.standard_normal((outputs, rank), np.float32) * rank**-0.5
    directory.mkdir(parents=True)
    ends = sorted({key.removesuffix(".lora_A.weight").rpartition(".")[2] for key in tensors if "lora_A" in key})
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": ends}
    (directory / "adapter_config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file(tensors, directory / "adapter_model.safetensors")
    return directory
