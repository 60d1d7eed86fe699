"""Quantised checkpoints as sources of weights: names and rows, methods, schemes of modules, and what is refused."""

import doctest
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import CheckpointError, ConfigError, MappingWeights
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.quantized import (
    QuantizedWeights,
    _integers,
    _stored,
    quantization_fields,
)
from transformer_core.checkpoints.quantized._integers import columns_between, unpacked_bits, word_count
from transformer_core.checkpoints.quantized._matrix import ScaledMatrix
from transformer_core.checkpoints.quantized._scales import powers_of_two, small_floats
from transformer_core.checkpoints.quantized._schemes import Schemes

_NAMES = {"float32": "F32", "uint8": "U8"}


class Stored(MappingWeights):
    """Arrays as a checkpoint's tensors."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        super().__init__(arrays, "model.safetensors")
        self._arrays_by_key = arrays

    def stored_form(self, key: str) -> tuple[str, tuple[int, ...]]:
        array = self._arrays_by_key[key]
        return _NAMES[array.dtype.name], array.shape

    def read_stored(self, key: str) -> np.ndarray:
        return self._arrays_by_key[key]


_MXFP4 = {
    "experts.up_blocks": np.arange(2 * 3 * 2 * 16, dtype=np.uint8).reshape(2, 3, 2, 16),
    "experts.up_scales": np.full((2, 3, 2), 127, np.uint8),
    "norm.weight": np.ones(4, np.float32),
}


def _opened(arrays: dict[str, np.ndarray] | None = None, **fields: Any) -> QuantizedWeights:
    values = {"quant_method": "mxfp4", **fields}
    return QuantizedWeights(Stored(_MXFP4 if arrays is None else arrays), values)


def test_weights_have_the_names_and_shapes_that_they_would_have_unquantised():
    weights = _opened()
    assert list(weights.keys()) == ["experts.up", "norm.weight"]
    assert not weights.has("experts.up_blocks")
    assert repr(weights.spec("experts.up")) == "f32[2,64,3]"
    assert (weights.encoding("experts.up"), weights.encoding("norm.weight")) == ("mxfp4_pairs", None)
    assert weights.stored_bytes("experts.up") == 2 * 3 * 2 * 17
    assert weights.origin("experts.up") == "model.safetensors"
    assert weights.read("norm.weight").tolist() == [1, 1, 1, 1]
    np.testing.assert_array_equal(weights.read_matrix_rows("experts.up", 60, 70)[4:], weights.read("experts.up")[1, :6])


def test_rows_that_are_not_there():
    with pytest.raises(CheckpointError, match=r"model\.safetensors: rows 1 to 3 of tensor 'experts\.up' asked, it has"):
        _opened().read_rows("experts.up", 1, 3)
    with pytest.raises(CheckpointError, match=r"no tensor 'experts\.down'"):
        _opened().spec("experts.down")
    with pytest.raises(CheckpointError, match=r"no packed encoding holds tensor 'experts\.up' exactly"):
        _opened().read_packed_rows("experts.up", 0, 1)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "hqq"}, "'quant_method': expected one of fp8, fbgemm_fp8, .* take the original.*found 'hqq'"),
        ({"load_in_4bit": True}, "'load_in_4bit': expected a quant_method among .*, not bitsandbytes; found True"),
        ({"quant_method": ["fp8"]}, "'quant_method': expected one of"),
        ("fp8", "'quantization_config': expected an object"),
    ],
)
def test_methods_that_are_refused(config: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        quantization_fields(ConfigFields({"quantization_config": config}, "config.json"))


def test_an_unquantised_checkpoint_has_no_fields():
    assert quantization_fields(ConfigFields({"quantization_config": None}, "config.json")) is None
    older = ConfigFields({"compression_config": {"quant_method": "compressed-tensors"}}, "config.json")
    assert quantization_fields(older) is not None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quant_method": "gptq", "bits": 5}, "'bits': expected one of 2, 3, 4, 8; found 5"),
        (
            {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"},
            "'checkpoint_format': expected one of gptq",
        ),
        ({"quant_method": "awq", "version": "gemv"}, "'version': expected gemm, the layout that is read; found 'gemv'"),
        ({"quant_method": "awq", "bits": 8}, "'bits': expected 4; found 8"),
        ({"quant_method": "awq", "zero_point": False}, "'zero_point': expected true"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "'weight_block_size': expected a list of 2 finite"),
        ({"quant_method": "fp8", "weight_block_size": [0.5, 2]}, "'weight_block_size': expected two whole numbers"),
    ],
)
def test_settings_that_are_refused(fields: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        _opened({}, **fields)


def _matrix(scale: float, least: int, most: int, *, group: int = 32, columns: int = 64) -> ScaledMatrix:
    codes = np.arange(3 * columns).reshape(3, columns) % (most - least + 1) + least
    scales = np.full((3, -(-columns // group)), scale, np.float32)
    return ScaledMatrix(
        "int", (3, columns), (), lambda a, b: codes[a:b], lambda a, b: scales[a:b], group, integers=(least, most)
    )


@pytest.mark.parametrize(
    ("matrix", "encoding"),
    [
        (_matrix(0.5, -8, 7), "q4_0"),
        (_matrix(0.5, -8, 8), "q5_0"),
        (_matrix(0.5, -128, 127), "q8_0"),
        (_matrix(0.5, -129, 127), None),
        (_matrix(0.1, -8, 7), None),  # no f16
        (_matrix(1e5, -8, 7), None),  # too large for an f16
        (_matrix(2.0**-24, -8, 7), "q4_0"),
        (_matrix(0.5, -8, 7, group=16), None),
        (_matrix(0.5, -8, 7, columns=80), None),
        (_matrix(0.5, -8, 7, group=64), "q4_0"),
        (_matrix(0.5, -8, 7, group=48, columns=96), None),
    ],
)
def test_the_smallest_encoding_that_holds_a_matrix(matrix: ScaledMatrix, encoding: str | None):
    assert matrix.packed_as() == encoding


_GROUP = {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "group", "group_size": 32}}


def _schemes(**fields: Any) -> Schemes:
    values = {"format": "pack-quantized", "config_groups": {"group_0": _GROUP}, **fields}
    return Schemes(ConfigFields(values, "config.json: quantization_config"))


def _group(target: str, bits: int) -> dict[str, Any]:
    return {"targets": [target], "weights": {"num_bits": bits, "strategy": "channel"}}


def test_names_count_before_patterns_and_patterns_before_classes():
    groups = {
        "class": _group("Linear", 2),
        "pattern": _group("re:.*up_proj$", 4),
        "name": _group("layers.0.up_proj", 8),
        "tables": _group("Embedding", 3),
    }
    schemes = _schemes(config_groups=groups)
    modules = ("layers.0.down_proj", "layers.1.up_proj", "layers.0.up_proj", "model.embed_tokens")
    assert [schemes.of(module).bits for module in modules] == [2, 4, 8, 3]


def test_patterns_match_from_the_beginning():
    schemes = _schemes(config_groups={"pattern": _group("re:up_proj", 4)})
    with pytest.raises(ConfigError, match=r"no target of config_groups matches 'layers\.0\.up_proj'.*targets: re:up"):
        schemes.of("layers.0.up_proj")


def test_an_ignored_module_that_is_quantised_is_refused():
    schemes = _schemes(ignore=["lm_head", "re:.*gate$"])
    for module in ("lm_head", "layers.0.mlp.gate"):
        with pytest.raises(ConfigError, match=f"ignore has '{module}', whose weight is stored quantised"):
            schemes.of(module)
    assert schemes.of("layers.0.mlp.gate_proj").shared == (1, 32)


def test_what_shares_a_scale():
    weights = {
        "a": {"strategy": "block", "block_structure": "16x32"},
        "b": {"strategy": "block", "block_structure": [16, 32]},
        "c": {"group_size": 64},
        "d": {"group_size": -1},
        "e": {},
    }
    groups = {name: {"targets": [name], "weights": fields} for name, fields in weights.items()}
    schemes = _schemes(config_groups=groups)
    shared = {name: (schemes.of(name).strategy, schemes.of(name).shared) for name in weights}
    assert shared == {
        "a": ("block", (16, 32)),
        "b": ("block", (16, 32)),
        "c": ("group", (1, 64)),
        "d": ("channel", None),
        "e": ("tensor", None),
    }


def test_activations_are_noted():
    assert not _schemes().quantises_activations
    assert _schemes(kv_cache_scheme={"num_bits": 8}).quantises_activations
    group = {**_GROUP, "input_activations": {"num_bits": 8, "dynamic": True}}
    assert _schemes(config_groups={"group": group}).quantises_activations


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "marlin-24"}, "'format': expected one of pack-quantized, .*found 'marlin-24'"),
        ({"format": "mixed-precision"}, "group_0: field 'format': expected one of .*since the checkpoint's is mixed"),
        ({"transform_config": {"r1": {}}}, "'transform_config': expected none: rotated weights are not read"),
        ({"sparsity_config": {"format": "sparse-24-bitmask"}}, "'sparsity_config': expected none, or the format dense"),
        ({"ignore": ["re:("]}, r"'ignore': '\(' is no regular expression"),
        ({"ignore": "lm_head"}, "'ignore': expected a list of names; found 'lm_head'"),
        ({"config_groups": {"a": {**_GROUP, "weights": {"dynamic": True}}}}, "'dynamic': expected false: weights are"),
        ({"config_groups": {"a": {**_GROUP, "weights": {"type": "fp"}}}}, "'type': expected one of int, float"),
        ({"config_groups": {"a": {**_GROUP, "weights": {"strategy": "token"}}}}, "'strategy': expected one of tensor"),
        (
            {"config_groups": {"a": {**_GROUP, "weights": {"strategy": "block", "block_structure": [0, 4]}}}},
            "'block_structure': expected two whole numbers above 0",
        ),
    ],
)
def test_schemes_that_are_refused(fields: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        _schemes(**fields)


def test_every_float_of_8_bits():
    every = np.arange(256, dtype=np.uint8)
    for dtype, same in {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}.items():
        np.testing.assert_array_equal(small_floats(dtype, every), every.view(same).astype(np.float32))
    powers = every.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    np.testing.assert_array_equal(powers_of_two(every), powers)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(1, 3), st.integers(1, 70), st.randoms(use_true_random=False), st.data())
def test_integers_of_any_bits(bits: int, rows: int, count: int, random: Random, data: st.DataObject):
    """Against one large number per row, of which 32 bits are a word."""
    integers = [[random.randrange(1 << bits) for _ in range(count)] for _ in range(rows)]
    numbers = [sum(value << place * bits for place, value in enumerate(row)) for row in integers]
    size = word_count(count, bits)
    words = np.array([[number >> 32 * place & 0xFFFFFFFF for place in range(size)] for number in numbers], np.uint32)
    assert unpacked_bits(words, bits)[:, :count].tolist() == integers
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    assert columns_between(words, bits, start, stop).tolist() == [row[start:stop] for row in integers]


def test_doctests():
    assert [doctest.testmod(module).failed for module in (_integers, _stored)] == [0, 0]
