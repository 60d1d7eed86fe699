"""Packed weights of every encoding on a mesh: rows are cut between blocks, results are those of one device."""

import os
from collections import Counter

import numpy as np
import pytest

from lang_core import ENCODINGS, Encoding, MeshShape, f32
from tests.emission._packed_cases import packed_blocks
from tests.mesh._models import MeshModel
from transformer_core import pack_weights
from transformer_core.models import DecoderConfig, DecoderLM
from transformer_core.sharding import sharding

_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 512,
    "intermediate_size": 512,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64,
}


def _weights(model: DecoderLM) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    made: dict[str, np.ndarray] = {}
    for path, parameter in model.named_parameters():
        if parameter.encoding is None:
            made[path] = np.ones(parameter.spec.shape, np.float32)
            continue
        *outer, inputs = parameter.spec.shape
        scales = rng.uniform(0.5, 1.0, (*outer, inputs // parameter.encoding.block)).astype(np.float16)
        made[path] = packed_blocks(parameter.encoding, _small(scales, parameter.encoding))
    return made


def _small(scales: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Returns scales whose weights are of the order of 1 / sqrt(512)."""
    drawn = encoding.unpacked(packed_blocks(encoding, np.ones((8, 2), np.float16)))
    return (scales * np.float16(0.05 / np.abs(drawn).max())).astype(np.float16)


@pytest.mark.parametrize("name", ENCODINGS if os.environ.get("TAPELINE_LONG") else ["q8_0", "q4_k"])
def test_packed_weights_say_what_one_device_says(name: str) -> None:
    model = DecoderLM(DecoderConfig.from_hf(_CONFIG))
    pack_weights(model, ENCODINGS[name], f32)
    weights, mesh = _weights(model), MeshShape.parse("tp=2")
    axes = sharding(model, mesh).parameters
    assert axes["model.layers.0.mlp.down_proj.weight"] == (None, "tp")
    (expected, tokens), (logits, chosen) = (
        MeshModel(model, shape, batch=1).answers(weights, steps=3) for shape in (MeshShape.parse("tp=1"), mesh)
    )
    assert np.isfinite(expected).all()
    assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
    np.testing.assert_array_equal(chosen, tokens)


@pytest.mark.parametrize("name", ENCODINGS if os.environ.get("TAPELINE_LONG") else ["q8_0"])
def test_packed_experts_say_what_one_device_says(name: str) -> None:
    experts = {"architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2}
    model = DecoderLM(DecoderConfig.from_hf({**_CONFIG, **experts, "hidden_size": 256, "intermediate_size": 256}))
    pack_weights(model, ENCODINGS[name], f32)
    weights, mesh = _weights(model), MeshShape.parse("ep=2")
    expected, tokens = MeshModel(model, MeshShape.parse("tp=1"), batch=1).answers(weights, steps=3)
    made = MeshModel(model, mesh, batch=1)
    logits, chosen = made.answers(weights, steps=3)
    assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
    np.testing.assert_array_equal(chosen, tokens)
    assert all(function.collectives == Counter({"all-reduce": 1}) for function in made.functions.values())
