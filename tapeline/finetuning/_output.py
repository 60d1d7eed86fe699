"""The result of a fine-tuning: an adapter that PEFT reads, or a checkpoint with its configuration and tokenizer."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import TensorSpec, WeightSource, as_dtype
from tapeline.converting import write_description
from tapeline.finetuning._adapter import AdaptedModule
from tapeline.text import tokenizer_files
from transformer_core.checkpoints import SINGLE_FILE, write_safetensors
from transformer_core.models import DecoderLM, StoredLayout

_PREFIX: Final = "base_model.model."


def write_adapter(
    directory: Path,
    factors: Mapping[str, np.ndarray],
    modules: Sequence[AdaptedModule],
    rank: int,
    alpha: float,
    base: str,
) -> None:
    """Writes adapter_config.json and adapter_model.safetensors.

    Args:
        directory: output directory.
        factors: A [rank, inputs] and B [outputs, rank] by key.
        modules: modules that are adapted.
        rank: r.
        alpha: numerator of the scaling.
        base: name of the model.
    """
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted({module.name for module in modules}),
        "fan_in_fan_out": any(module.transposed for module in modules),
        "bias": "none",
        "use_rslora": False,
        "use_dora": False,
        "init_lora_weights": True,
        "inference_mode": True,
    }
    _write_json(directory / "adapter_config.json", config)
    arrays = {_PREFIX + key: array for key, array in factors.items()}
    _write(directory / "adapter_model.safetensors", arrays, "f32")


def write_checkpoint(
    directory: Path,
    parameters: Mapping[str, np.ndarray],
    model: DecoderLM,
    source: WeightSource | None,
    files: Path,
    dtype: str,
) -> None:
    """Writes model.safetensors in the layout of the family's checkpoints, config.json, and the tokenizer's files.

    Args:
        directory: output directory.
        parameters: every parameter by path.
        model: model.
        source: checkpoint with the form to keep; None for the canonical form.
        files: directory of the model, with the files to copy.
        dtype: dtype in which the weights are written.
    """
    stored = dict(StoredLayout(model, source).tensors(parameters))
    _write(directory / SINGLE_FILE, stored, dtype)
    write_description(directory, files, dtype, ("generation_config.json", *tokenizer_files()))


def _write(path: Path, arrays: Mapping[str, np.ndarray], dtype: str) -> None:
    specs = {key: TensorSpec(array.shape, dtype) for key, array in arrays.items()}
    numpy = as_dtype(dtype).numpy
    write_safetensors(path, specs, lambda key, _: [arrays[key].astype(numpy)], metadata={"format": "pt"})


def _write_json(path: Path, fields: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
