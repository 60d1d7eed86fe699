"""Quantised checkpoints against what the formats' own libraries make of them, and models from them."""

import dataclasses
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import EagerExecutionContext, MappingWeights, WeightSource, encoding_named
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.golden_files import QUANTIZED, read_quantized_golden
from tests.goldens.quantized_models import ENCODINGS, FORMS, write_quantized, write_tensors
from transformer_core import keep_packed
from transformer_core.checkpoints import SafetensorsCheckpoint, SafetensorsFile, audit
from transformer_core.checkpoints.quantized import QuantizedWeights
from transformer_core.models import (
    DecoderLM,
    load_config,
    load_model,
    stored_encodings,
    stored_specs,
    tied_keys,
    unquantized,
    unused_keys,
    weights_of,
)


def _opened(name: str) -> QuantizedWeights:
    file = SafetensorsFile(QUANTIZED / f"{name}.safetensors")
    return QuantizedWeights(file, json.loads(file.metadata["quantization_config"]))


_CASES = pytest.mark.parametrize("name", sorted(path.stem for path in QUANTIZED.glob("*.safetensors")))


def _same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(actual, expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.tobytes() == expected.tobytes()


@_CASES
def test_weights_are_the_librarys_bit_for_bit(name: str):
    weights = _opened(name)
    expected = read_quantized_golden(name)
    assert {key for key in weights.keys() if weights.encoding(key)} == set(expected)  # noqa: SIM118
    for key, weight in expected.items():
        assert weights.spec(key).shape == weight.shape
        _same_bits(weights.read(key), weight)


@_CASES
def test_any_rows_are_rows_of_the_whole(name: str):
    weights = _opened(name)
    rng = np.random.default_rng(1)
    for key, weight in read_quantized_golden(name).items():
        matrix = weight.reshape(-1, weight.shape[-1])
        for _ in range(5):
            start, stop = sorted(rng.integers(0, len(matrix) + 1, 2).tolist())
            _same_bits(weights.read_matrix_rows(key, start, stop), matrix[start:stop])
        start, stop = sorted(rng.integers(0, len(weight) + 1, 2).tolist())
        _same_bits(weights.read_rows(key, start, stop), weight[start:stop])


@_CASES
def test_packed_rows_hold_the_same_weights(name: str):
    weights = _opened(name)
    for key, weight in read_quantized_golden(name).items():
        encoding = weights.packed_as(key)
        if encoding is not None:
            rows = weights.read_packed_rows(key, 1, len(weight))
            np.testing.assert_array_equal(encoding_named(encoding).unpacked(rows), weight[1:])


_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
_LATENT = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 32,
    "q_lora_rank": 32, "moe_intermediate_size": 32, "v_head_dim": 16,
}  # fmt: skip


def _case(name: str = "llama_gqa", **sizes: Any) -> GoldenCase:
    case = CASES[name]
    return dataclasses.replace(case, config={**case.config, **(sizes or _SIZES)}, prompt=case.prompt[:1])


def _logits(model: DecoderLM, weights: WeightSource, case: GoldenCase) -> np.ndarray:
    prompt: Any = np.array(case.prompt, np.int32)
    return model(EagerExecutionContext(weights_of(model, weights)), prompt).numpy()


def _assert_alike(logits: np.ndarray, expected: np.ndarray) -> None:
    """Asserts equal logits; a weight that lies transposed in memory may be summed in another order."""
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_those_of_the_weights_that_are_stored(form: str, tmp_path: Path) -> None:
    case = _case()
    stored = MappingWeights(write_quantized(tmp_path, case, form))
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        weights = unquantized(tmp_path, checkpoint)
        model = load_model(tmp_path)
        assert isinstance(model, DecoderLM)
        wanted = stored_specs(model, weights)
        result = audit(weights, wanted, tied=tied_keys(model, weights), ignorable=unused_keys(model, weights))
        assert (result.missing, result.unexpected) == ((), ())
        expected = _logits(model, stored, case)
        _assert_alike(_logits(model, weights, case), expected)
        encodings = stored_encodings(model, weights)
        assert {encoding.name for encoding in encodings.values()} == {*filter(None, [ENCODINGS.get(form)])}
        if encodings:
            keep_packed(model, encodings, model.dtype)
            np.testing.assert_allclose(_logits(model, weights, case), expected, rtol=2e-5, atol=2e-5)


def test_zero_biases_of_gptq_are_no_surplus(tmp_path: Path) -> None:
    """Checkpoints of AutoGPTQ have them; other biases are the model's, or refused."""
    write_quantized(tmp_path, _case(), "gptq3")
    path, key = tmp_path / "model.safetensors", "model.layers.0.mlp.up_proj.bias"
    tensors = safetensors.numpy.load_file(path)
    for bias in (np.zeros(96, np.float16), np.ones(96, np.float16)):
        write_tensors(path, {**tensors, key: bias})
        with SafetensorsCheckpoint(tmp_path) as checkpoint:
            weights, model = unquantized(tmp_path, checkpoint), load_model(tmp_path)
            result = audit(weights, stored_specs(model, weights), ignorable=unused_keys(model, weights), strict=False)
        assert (key in result.ignored, key in result.unexpected) == (not bias.any(), bool(bias.any()))


@pytest.mark.parametrize("form", ["fp8", "gptq3"])
def test_experts_and_latent_attention(form: str, tmp_path: Path) -> None:
    """DeepSeek-V3: experts that are stacked, and projections that are cut, of quantised matrices."""
    case = _case("deepseek_v3", **_LATENT)
    stored = MappingWeights(write_quantized(tmp_path, case, form))
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        model = DecoderLM(load_config(tmp_path))
        expected = _logits(model, stored, case)
        _assert_alike(_logits(model, unquantized(tmp_path, checkpoint), case), expected)


@pytest.mark.parametrize("form", ["awq", "fp8", "gptq3", "int4", "mxfp4"])
def test_memory_of_reading_is_bounded(form: str, tmp_path: Path) -> None:
    """Beside the rows that are asked for, a few MiB, whatever the size of the matrix."""
    sizes: dict[str, Any] = {**_SIZES, "hidden_size": 512, "intermediate_size": 4096, "num_hidden_layers": 1}
    write_quantized(tmp_path, _case(**sizes), form)
    key = "model.layers.0.mlp.gate_proj.weight"
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        weights = unquantized(tmp_path, checkpoint)
        assert isinstance(weights, QuantizedWeights)
        for read in (weights.read_rows, weights.read_packed_rows if weights.packed_as(key) else weights.read_rows):
            tracemalloc.start()
            rows = read(key, 100, 4000)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak - rows.nbytes < 8 << 20
