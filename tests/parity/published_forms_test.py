"""Families that only their authors' code has: models that transformers has under other names say the same."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import EagerExecutionContext
from tests.goldens.cases import CASES, Config
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import encoder_weights, read_encoder_golden, write_encoder_checkpoint
from tests.goldens.golden_files import read_golden
from tests.goldens.published_forms import FORMS, Weights, fused, llama_fields, side_by_side
from tests.goldens.weights import stored_weights
from tests.parity._golden_encoders import forward_of
from tests.parity._golden_models import relative_error
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import load_model, weights_of


def _logits(directory: Path, architecture: str, config: Config, weights: Weights, prompt: np.ndarray) -> np.ndarray:
    values = {**config, "architectures": [architecture], "torch_dtype": "float32"}
    (directory / "config.json").write_text(json.dumps(values))
    contiguous = {key: np.ascontiguousarray(array) for key, array in weights.items()}
    safetensors.numpy.save_file(contiguous, directory / "model.safetensors")
    model = load_model(directory)
    with SafetensorsCheckpoint(directory) as checkpoint:
        ids: Any = prompt.astype(np.int32)
        return model(EagerExecutionContext(weights_of(model, checkpoint)), ids).numpy()


@pytest.mark.parametrize("architecture", FORMS)
def test_a_model_under_its_authors_names_says_what_transformers_says(architecture: str, tmp_path: Path) -> None:
    name, stored, config = FORMS[architecture]
    case, golden = CASES[name], read_golden(name)
    weights = {key: array.astype(np.float32) for key, array in stored_weights(case).items()}
    actual = _logits(tmp_path, architecture, config(case.config), stored(weights, case.config), golden.prompt)
    assert relative_error(actual, golden.prompt_logits) < 2e-4


def test_baichuan_2_divides_the_rows_of_its_head_by_their_lengths(tmp_path: Path) -> None:
    """Known by its vocabulary; rows that the case does not have are ones."""
    case, golden = CASES["llama_mha"], read_golden("llama_mha")
    weights = fused(dict(stored_weights(case)), "W_pack", side_by_side)
    lengths = np.linalg.norm(weights["lm_head.weight"], axis=-1)
    known = len(lengths)
    for key in ("model.embed_tokens.weight", "lm_head.weight"):
        rows = np.ones((125696, weights[key].shape[1]), np.float32)
        rows[:known] = weights[key]
        weights[key] = rows
    config = {**llama_fields(case.config), "vocab_size": 125696}
    actual = _logits(tmp_path, "BaichuanForCausalLM", config, weights, golden.prompt)[..., :known]
    assert relative_error(actual, golden.prompt_logits / lengths) < 2e-4


_NEW_LAYERS = {
    "layers.": "encoder.layer.",
    "self_attn.": "attention.",
    "post_attention_layernorm": "attn_ln",
    "post_mlp_layernorm": "mlp_ln",
    "lm_head.layer_norm": "lm_head.norm",
}


def _new_weights(weights: Weights) -> Weights:
    """Returns the weights of a GTE as its authors' code stores them."""
    stored = fused(weights, "qkv_proj", side_by_side)
    for key in [key for key in stored if ".up_proj." in key]:
        gate = stored.pop(key.replace("up_proj", "gate_proj"))
        stored[key.replace("up_proj", "up_gate_proj")] = side_by_side(stored.pop(key), gate)
    renamed: Weights = {}
    for key, array in stored.items():
        key = f"new.{key.removeprefix('gte.')}" if key.startswith("gte.") else key
        for part, name in _NEW_LAYERS.items():
            key = key.replace(part, name)
        renamed[key] = np.ascontiguousarray(array)
    return renamed


@pytest.mark.parametrize("name", ["gte_sentence", "gte_masked_lm", "gte_classifier"])
def test_a_gte_under_its_authors_names_says_what_transformers_says(name: str, tmp_path: Path) -> None:
    case, golden = ENCODER_CASES[name], read_encoder_golden(name)
    write_encoder_checkpoint(tmp_path, case)
    config = {key: value for key, value in case.config.items() if key != "rope_parameters"}
    config |= {"architectures": [case.architecture.replace("Gte", "New")], "model_type": "new", "rope_theta": 70.0}
    config |= {"pack_qkv": True, "position_embedding_type": "rope", "layer_norm_type": "layer_norm"}
    if case.config["rope_parameters"]["rope_type"] == "linear":  # the same frequencies
        config["rope_scaling"] = {"type": "ntk", "factor": 2.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file(_new_weights(encoder_weights(case)), tmp_path / "model.safetensors")
    model = load_model(tmp_path)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        ctx = EagerExecutionContext(weights_of(model, checkpoint))
        results: Any = forward_of(model, golden.inputs)(ctx, *map(ctx.constant, golden.inputs.values()))
        assert results
        for output, tensor in results.items():
            assert relative_error(tensor, golden.outputs[output]) < 2e-4, output
