"""Golden models whose files tie, name or configure tensors otherwise than transformers writes them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import safetensors.numpy

from tests.goldens.cases import CASES
from tests.goldens.golden_files import DATA
from tests.goldens.weights import random_tensor, write_checkpoint

STORED: Final = DATA / "stored.npz"
"""Logits of the prompt f32 [B, T, V], by case: ``make_stored_goldens`` wrote them."""

Tensors = dict[str, np.ndarray]


class StoredCase(NamedTuple):
    """Golden model with changed files.

    Attributes:
        model: name of the model in ``CASES``.
        tensors: changes the tensors of the checkpoint.
        fields: fields of config.json that are changed; removed if None.
    """

    model: str
    tensors: Callable[[Tensors], Tensors] = dict
    fields: Mapping[str, Any] = {}


def write_stored(directory: Path, case: StoredCase) -> None:
    """Writes the files of a case into an empty directory."""
    write_checkpoint(directory, CASES[case.model])
    path, weights = directory / "config.json", directory / "model.safetensors"
    config = {**json.loads(path.read_text()), **case.fields}
    removed = {name for name, value in case.fields.items() if value is None}
    path.write_text(json.dumps({name: value for name, value in config.items() if name not in removed}))
    tensors = case.tensors(safetensors.numpy.load_file(weights))
    safetensors.numpy.save_file(tensors, weights, metadata={"format": "pt"})


def _other(tensor: np.ndarray) -> np.ndarray:
    return random_tensor("lm_head.weight", tensor.shape, 5, tensor.shape[1], 1.0)


def _with_head(key: str, embedding: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, key: _other(tensors[embedding])}


def _as_head(embedding: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {("lm_head.weight" if key == embedding else key): value for key, value in tensors.items()}


def _equal_heads(tensors: Tensors) -> Tensors:
    return {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].copy()}


def _without(prefix: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key.removeprefix(prefix): value for key, value in tensors.items()}


def _headless(tensors: Tensors) -> Tensors:
    return {key: value for key, value in tensors.items() if key != "lm_head.weight"}


_EMBEDDING: Final = "model.embed_tokens.weight"
_FACTORS: Final[Mapping[str, Any]] = CASES["phi3_longrope_partial"].config["rope_parameters"]
_TIED: Final = {"tie_word_embeddings": True}
_LONGROPE: Final = {
    "short_factor": _FACTORS["short_factor"],
    "long_factor": _FACTORS["long_factor"],
    "partial_rotary_factor": _FACTORS["partial_rotary_factor"],
    "rope_theta": 10000.0,
}

STORED_CASES: Final[dict[str, StoredCase]] = {
    "tied_with_another_head": StoredCase("llama_tied", _with_head("lm_head.weight", _EMBEDDING)),
    "tied_with_the_same_head": StoredCase("llama_tied", _equal_heads),
    "tied_head_alone": StoredCase("llama_tied", _as_head(_EMBEDDING)),
    "gpt2_with_another_head": StoredCase("gpt2", _with_head("lm_head.weight", "transformer.wte.weight"), _TIED),
    "gpt2_head_alone": StoredCase("gpt2", _as_head("transformer.wte.weight"), _TIED),
    "gemma_with_another_head": StoredCase("gemma", _with_head("lm_head.weight", _EMBEDDING), _TIED),
    "gemma_head_alone": StoredCase("gemma", _as_head(_EMBEDDING), _TIED),
    "phi3_yarn_is_longrope": StoredCase(
        "phi3_longrope_partial",
        fields={
            "rope_parameters": None,
            "rope_scaling": {**_LONGROPE, "type": "yarn"},
            "original_max_position_embeddings": 16,
        },
    ),
    "phi3_own_original_length": StoredCase(
        "phi3_longrope_partial",
        fields={
            "rope_parameters": {**_LONGROPE, "rope_type": "longrope", "original_max_position_embeddings": 16},
            "original_max_position_embeddings": None,
        },
    ),
    "phi_tied": StoredCase("phi", _headless, _TIED),
    "phi_tied_with_another_head": StoredCase("phi", fields=_TIED),
    "phimoe_tied": StoredCase("phimoe", _headless, _TIED),
    "ernie4_5_moe_tied": StoredCase("ernie4_5_moe_biases", _headless, _TIED),
    **{
        f"{model}_without_its_prefix": StoredCase(model, _without(prefix))
        for model, prefix in {
            **dict.fromkeys(("llama_gqa", "llama_tied", "cohere", "qwen3_moe", "phi3_window_4x"), "model."),
            "gpt_neox": "gpt_neox.",
            "mamba2": "backbone.",
            "nemotron_h": "backbone.",
        }.items()
    },
    "llama_without_its_prefix_with_another_head": StoredCase(
        "llama_tied", lambda tensors: _without("model.")(_with_head("lm_head.weight", _EMBEDDING)(tensors))
    ),
}
