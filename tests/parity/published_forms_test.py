"""Families that only their authors' code has: models that transformers has under other names say the same."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import EagerExecutionContext
from tests.goldens.cases import CASES, Config
from tests.goldens.golden_files import read_golden
from tests.goldens.published_forms import FORMS, Weights, fused, llama_fields, side_by_side
from tests.goldens.weights import stored_weights
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
