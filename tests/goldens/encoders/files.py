"""Read the golden files in ``data/``, and write checkpoints of their cases. No weight is stored."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tests.goldens.encoders.cases import EncoderCase
from tests.goldens.weights import unit_values

DATA = Path(__file__).parent / "data"
_POOLING = {
    "cls": "pooling_mode_cls_token",
    "lasttoken": "pooling_mode_lasttoken",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
}
# T5's decoder repeats one token for ever unless its feed-forward outweighs the source.
_T5 = {"1.EncDecAttention.o.weight": 0.3, "2.DenseReluDense.wi.weight": 6.0, "2.DenseReluDense.wo.weight": 6.0}
# So does that of BART's group.
_BART = {"encoder_attn.out_proj.weight": 0.3, "fc1.weight": 6.0, "fc2.weight": 6.0}
_TABLES = ("model.shared.weight", "led.shared.weight", "model.encoder.embed_tokens.weight")
_PICKY = ("query", "key", "q_proj", "k_proj", "in_proj")


@dataclass(frozen=True)
class EncoderGolden:
    """Results of transformers for an ``EncoderCase``, in f32 with eager attention.

    Attributes:
        inputs: by the names of our entry points' arguments.
        outputs: by the names of our entry points' results, and others that ``make_encoder_goldens.py`` names.
        hidden: ``[L, B, T, D]``, the encoder's states after each layer.
    """

    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    hidden: np.ndarray


def read_encoder_golden(name: str) -> EncoderGolden:
    """The golden arrays of the case called ``name``."""
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    hidden = arrays.pop("hidden")
    inputs = {key.removeprefix("input."): array for key, array in arrays.items() if key.startswith("input.")}
    outputs = {key.removeprefix("output."): array for key, array in arrays.items() if key.startswith("output.")}
    return EncoderGolden(inputs, outputs, hidden)


def read_encoder_manifest() -> dict[str, Any]:
    """Versions, and per case its digest and the keys and shapes that transformers stores."""
    return json.loads((DATA / "manifest.json").read_text())


def random_encoder_weights(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """f32 weights; those of norms lie around 1, attention is picky."""
    if any("pre_self_attn_layernorm" in key for key in shapes):  # T5Gemma, which adds 1 to the weights of norms
        centre = {key: np.float32(len(shape) == 1) for key, shape in shapes.items()}
        return {key: _tensor(key, tuple(shape), seed, False) - centre[key] for key, shape in shapes.items()}
    translates = any(name in shapes for name in _TABLES)
    return {key: _tensor(key, tuple(shape), seed, translates) for key, shape in shapes.items()}


def _tensor(key: str, shape: tuple[int, ...], seed: int, translates: bool) -> np.ndarray:
    unit = unit_values(key, shape, seed)
    if translates and len(shape) == 2 and shape[0] > 1 and "self_attn" not in key:
        gain = next((gain for name, gain in _BART.items() if "decoder" in key and key.endswith(name)), 3.0)
        return unit * np.float32(np.sqrt(3.0 * gain / shape[-1]))
    if not shape:  # the scale of CLIP's logits, as a logarithm
        return np.array(abs(unit), np.float32)
    if len(shape) == 1:
        return np.float32(0.5) * unit if key.endswith("bias") else np.float32(1.0) + np.float32(0.25) * unit
    if ".embed_" in key:  # tokens' are a head, too: without positions that stand out it repeats one token for ever
        return unit * np.float32(np.sqrt(3.0 * (1.0 if "tokens" in key else 36.0) / shape[-1]))
    if key == "shared.weight":
        return unit * np.float32(np.sqrt(3.0 * 0.3 / shape[-1]))
    embeds = len(shape) == 2 and "embedding" in key
    if embeds or shape[0] == 1:
        return unit * np.float32(np.sqrt(3.0 * 4.0 / shape[-1]))
    gain = 3.0 if any(name in key for name in _PICKY) else _T5.get(key.rpartition(".layer.")[2], 1.5)
    return unit * np.float32(np.sqrt(3.0 * gain / np.prod(shape[1:])))


def encoder_weights(case: EncoderCase) -> dict[str, np.ndarray]:
    """The case's weights, under the keys that transformers stores."""
    return random_encoder_weights(read_encoder_manifest()["cases"][case.name]["shapes"], case.seed)


def write_encoder_checkpoint(directory: Path, case: EncoderCase) -> None:
    """Writes the case's files into an empty directory, as transformers and sentence-transformers do."""
    write_config(directory, case)
    write_weights(directory, encoder_weights(case))


def write_weights(directory: Path, weights: Mapping[str, np.ndarray]) -> None:
    """Writes ``model.safetensors``, and those of matrices after the pooling into directories of their own."""
    own = {key: array for key, array in weights.items() if "_Dense." not in key}
    safetensors.numpy.save_file(own, directory / "model.safetensors", metadata={"format": "pt"})
    for folder in {key.partition(".")[0] for key in weights} - {key.partition(".")[0] for key in own}:
        matrix = {key.partition(".")[2]: array for key, array in weights.items() if key.startswith(f"{folder}.")}
        safetensors.numpy.save_file(matrix, directory / folder / "model.safetensors", metadata={"format": "pt"})


def write_config(directory: Path, case: EncoderCase) -> None:
    """Writes ``config.json``, and what makes a model one of sentence-transformers."""
    (directory / "config.json").write_text(json.dumps(dict(case.config), indent=2))
    if case.picture:
        size = dict(zip(("height", "width"), case.picture, strict=True))
        settings = {"image_processor_type": "BitImageProcessor", "do_center_crop": True, "crop_size": size}
        (directory / "preprocessor_config.json").write_text(json.dumps(settings))
    if case.pooling:
        _write_modules(directory, ["Transformer", "Pooling", *["Dense"] * len(case.dense), "Normalize"])
        _write_module(directory / "1_Pooling", {field: mode == case.pooling for mode, field in _POOLING.items()})
        for place, config in enumerate(dense_configs(case), 2):
            _write_module(directory / f"{place}_Dense", config)
    if case.score:
        _write_modules(directory, ["Transformer", "LogitScore"])
        tokens: dict[str, int] = dict(zip(("true_token_id", "false_token_id"), case.score, strict=False))
        _write_module(directory / "1_LogitScore", tokens)


def dense_configs(case: EncoderCase) -> list[dict[str, Any]]:
    """Returns config.json of each matrix after the pooling."""
    sizes = (case.config.get("hidden_size", case.config.get("d_model", 0)), *case.dense)
    kinds = {True: "torch.nn.modules.activation.Tanh", False: "torch.nn.modules.linear.Identity"}
    return [
        {
            "in_features": size,
            "out_features": sizes[place + 1],
            "bias": not place,
            "activation_function": kinds[not place],
        }
        for place, size in enumerate(sizes[:-1])
    ]


def _write_modules(directory: Path, kinds: list[str]) -> None:
    modules = [{"idx": i, "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
    (directory / "modules.json").write_text(json.dumps(modules))


def _write_module(directory: Path, config: Mapping[str, Any]) -> None:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
