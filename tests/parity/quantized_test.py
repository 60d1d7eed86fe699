"""Quantised checkpoints against what the formats' own libraries make of them, bit for bit."""

import json

import numpy as np
import pytest

from lang_core import ENCODINGS
from tests.goldens.golden_files import QUANTIZED, read_quantized_golden
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import SafetensorsFile
from transformer_core.checkpoints.quantized import QuantizedWeights


def _opened(name: str) -> QuantizedWeights:
    file = SafetensorsFile(QUANTIZED / f"{name}.safetensors")
    return QuantizedWeights(file, ConfigFields(json.loads(file.metadata["quantization_config"]), name))


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
            np.testing.assert_array_equal(ENCODINGS[encoding].unpacked(rows), weight[1:])
