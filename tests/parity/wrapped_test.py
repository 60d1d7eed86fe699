"""Decoders inside of models that also see: their published files against the goldens of the decoder alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import CheckpointError, ConfigError, EagerExecutionContext
from tests.goldens.cases import CASES
from tests.goldens.golden_files import read_golden
from tests.goldens.weights import stored_weights
from tests.goldens.wrapped_cases import WRAPPED, wrapped_config
from tests.parity._golden_models import relative_error
from transformer_core.checkpoints import Audit, SafetensorsCheckpoint, audit
from transformer_core.models import load_model, stored_specs, tied_keys, unused_keys, weights_of

_DENSE, _SPARSE = WRAPPED
_OTHERS = {
    "model.visual.patch_embed.proj.weight": np.zeros((4, 3, 2, 2), np.float32),
    "model.visual.blocks.0.norm1.weight": np.zeros(4, np.float32),
    "mtp.fc.weight": np.zeros((4, 8), np.float32),
}


def _write(directory: Path, architecture: str, inner: str = "model.language_model.", **changes: Any) -> None:
    case = CASES[WRAPPED[architecture][1]]
    weights = {key.replace("model.", inner, 1): array for key, array in stored_weights(case).items()}
    (directory / "config.json").write_text(json.dumps(wrapped_config(architecture, **changes)))
    safetensors.numpy.save_file(weights | _OTHERS, directory / "model.safetensors")


def _logits(directory: Path, prompt: np.ndarray, layers: int | None = None) -> tuple[np.ndarray, Audit]:
    model = load_model(directory, num_layers=layers)
    with SafetensorsCheckpoint(directory) as checkpoint:
        specs, tied = stored_specs(model, checkpoint), tied_keys(model, checkpoint)
        report = audit(checkpoint, specs, tied=tied, ignorable=unused_keys(model, checkpoint))
        ctx = EagerExecutionContext(weights_of(model, checkpoint))
        tokens: Any = prompt.astype(np.int32)
        logits: Any = model(ctx, tokens)
        return logits.numpy(), report


@pytest.mark.parametrize("architecture", WRAPPED)
def test_the_text_model_of_a_whole_one(architecture: str, tmp_path: Path) -> None:
    _write(tmp_path, architecture)
    golden = read_golden(WRAPPED[architecture][1])
    logits, report = _logits(tmp_path, golden.prompt)
    assert relative_error(logits, golden.prompt_logits) < 2e-4
    assert set(report.ignored) == set(_OTHERS)


def test_the_first_layers_of_a_whole_model(tmp_path: Path) -> None:
    _write(tmp_path, _SPARSE)
    golden = read_golden("qwen3_5_moe")
    report = _logits(tmp_path, golden.prompt, layers=1)[1]
    assert not any(".layers.1." in key for key in report.used)
    assert any(".layers.3." in key for key in report.ignored)


def test_what_does_not_fit(tmp_path: Path) -> None:
    golden = read_golden("qwen3_5_published")
    text = {**CASES["qwen3_5_published"].config, "attn_output_gate": False}
    _write(tmp_path, _DENSE, text_config=text)
    with pytest.raises(ConfigError, match=r"field 'attn_output_gate': expected true, or no such field"):
        _logits(tmp_path, golden.prompt)
    _write(tmp_path, _DENSE, inner="model.text.")
    with pytest.raises(CheckpointError, match=r"model.language_model.embed_tokens.weight' is missing"):
        _logits(tmp_path, golden.prompt)
