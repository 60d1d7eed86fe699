"""Decoders that transformers has not: GGUF files say what llama.cpp says, safetensors say what GGUF files say."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import ConfigError, EagerExecutionContext
from tests.goldens.gguf_own_decoders import OWN, prompt_of, write_own_decoder
from tests.goldens.golden_files import DATA
from tests.goldens.own_decoder_forms import AUTHORS, authors_config, authors_weights
from tests.parity._golden_models import relative_error
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import DecoderLM, load_model, weights_of
from transformer_core.models.gguf import GgufModel

_GOLDEN: dict[str, Any] = json.loads((DATA / "llama_cpp.json").read_text())["own_decoders"]
# Of a logarithm of a probability: llama.cpp computes some products in f16. Another layout of RoPE is off by 1.
_TOLERANCE = 2e-2


def _logits(path: Path, name: str, ids: Any) -> np.ndarray:
    write_own_decoder(path, OWN[name])
    with GgufModel(path) as file:
        model = DecoderLM(file.config())
        return model(EagerExecutionContext(weights_of(model, file)), ids).numpy()[0]


def test_every_model_has_its_golden() -> None:
    assert set(_GOLDEN) == set(OWN)


@pytest.mark.parametrize("name", OWN)
def test_logits_are_llama_cpps(name: str, tmp_path: Path) -> None:
    """Step by step on llama.cpp's own tokens: one call gives the logits behind all of them."""
    prompt, steps = prompt_of(OWN[name]), _GOLDEN[name]
    ids = np.array([[*prompt, *(step["token"] for step in steps[:-1])]], np.int32)
    logits = _logits(tmp_path / "model.gguf", name, ids)[len(prompt) - 1 :].astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    ours = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    assert len(ours) == len(steps)
    for row, step in zip(ours, steps, strict=True):
        for token, expected in step["top"]:
            assert abs(row[token] - expected) < _TOLERANCE
        assert row[:-1].max() - row[step["token"]] < _TOLERANCE  # the last token is the end, which was forbidden


@pytest.mark.parametrize("architecture", AUTHORS)
def test_safetensors_say_what_gguf_files_say(architecture: str, tmp_path: Path) -> None:
    name = AUTHORS[architecture][0]
    ids: Any = np.array([prompt_of(OWN[name])], np.int32)
    (tmp_path / "config.json").write_text(json.dumps(authors_config(architecture)))
    weights = {key: np.ascontiguousarray(array) for key, array in authors_weights(architecture).items()}
    safetensors.numpy.save_file(weights, tmp_path / "model.safetensors")
    model = load_model(tmp_path)
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        actual = model(EagerExecutionContext(weights_of(model, checkpoint)), ids).numpy()[0]
    assert relative_error(actual, _logits(tmp_path / "model.gguf", name, ids)) < 1e-5


@pytest.mark.parametrize("architecture", ["Grok1ForCausalLM", "PlamoForCausalLM", "GPTRefactForCausalLM"])
def test_safetensors_that_nothing_was_compared_with_are_refused(architecture: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    with pytest.raises(ConfigError, match=r"give a GGUF file, for safetensors of .* are not read"):
        load_model(tmp_path)
