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
from tests.goldens.wrapped_cases import ALONE, WRAPPED, wrapped_config
from tests.parity._golden_models import relative_error
from transformer_core.checkpoints import Audit, SafetensorsCheckpoint, audit
from transformer_core.models import load_config, load_model, stored_specs, tied_keys, unused_keys, weights_of

_DENSE, _SPARSE, _, _FUYU = WRAPPED  # of Llama 4 there is llama4_test
(_MISTRAL,) = ALONE
_QWENS = {
    "model.visual.patch_embed.proj.weight": np.zeros((4, 3, 2, 2), np.float32),
    "model.visual.blocks.0.norm1.weight": np.zeros(4, np.float32),
    "mtp.fc.weight": np.zeros((4, 8), np.float32),
}
_FUYUS = {"vision_embed_tokens.weight": np.zeros((32, 12), np.float32)}
_OTHERS = {_DENSE: _QWENS, _SPARSE: _QWENS, _MISTRAL: {}, _FUYU: _FUYUS}


def _write(directory: Path, architecture: str, inner: str = "model.language_model.", **changes: Any) -> None:
    case = CASES[(WRAPPED | ALONE)[architecture][1]]
    weights = {key.replace("model.", inner, 1): array for key, array in stored_weights(case).items()}
    (directory / "config.json").write_text(json.dumps(wrapped_config(architecture, **changes)))
    safetensors.numpy.save_file(weights | _OTHERS[architecture], directory / "model.safetensors")


def _logits(directory: Path, prompt: np.ndarray, layers: int | None = None) -> tuple[np.ndarray, Audit]:
    model = load_model(directory, num_layers=layers)
    with SafetensorsCheckpoint(directory) as checkpoint:
        specs, tied = stored_specs(model, checkpoint), tied_keys(model, checkpoint)
        report = audit(checkpoint, specs, tied=tied, ignorable=unused_keys(model, checkpoint))
        ctx = EagerExecutionContext(weights_of(model, checkpoint))
        tokens: Any = prompt.astype(np.int32)
        logits: Any = model(ctx, tokens)
        return logits.numpy(), report


@pytest.mark.parametrize("architecture", _OTHERS)
def test_the_text_model_of_a_whole_one(architecture: str, tmp_path: Path) -> None:
    _write(tmp_path, architecture)
    golden = read_golden((WRAPPED | ALONE)[architecture][1])
    logits, report = _logits(tmp_path, golden.prompt)
    assert relative_error(logits, golden.prompt_logits) < 2e-4
    assert set(report.ignored) == set(_OTHERS[architecture])


def test_mistrals_of_both_kinds_as_published(tmp_path: Path) -> None:
    """The head lies below ``language_model.``; a text_config without a model type is a Mistral with its defaults."""
    case, golden = CASES["ministral3"], read_golden("ministral3")
    _write(tmp_path, _MISTRAL)
    weights = {f"language_model.{key}": array for key, array in stored_weights(case).items()}
    safetensors.numpy.save_file(weights, tmp_path / "model.safetensors")
    logits, report = _logits(tmp_path, golden.prompt)
    assert relative_error(logits, golden.prompt_logits) < 2e-4
    assert not report.ignored
    config = wrapped_config(_MISTRAL, text_config={"num_hidden_layers": 2})
    (tmp_path / "config.json").write_text(json.dumps(config))
    small = load_config(tmp_path)
    assert (small.layers, small.hidden, small.rope.base, small.windows) == (2, 5120, 1e9, (None, None))
    assert small.query_growth is None


def test_wholes_that_are_not_read_name_their_text_model(tmp_path: Path) -> None:
    config = wrapped_config(_MISTRAL, architectures=["AyaVisionForConditionalGeneration"])
    (tmp_path / "config.json").write_text(json.dumps(config))
    remedy = "its text_config is a 'ministral3', which is supported: load the checkpoint with transformers, save its"
    with pytest.raises(ConfigError, match=f"'AyaVisionForConditionalGeneration' is not supported.*; {remedy}"):
        load_config(tmp_path)
    config["text_config"]["model_type"] = "mistral4"
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": [_MISTRAL]}))
    with pytest.raises(
        ConfigError, match=r"text_config: field 'model_type': expected one of mistral, ministral3;.* found"
    ):
        load_config(tmp_path)


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
