"""Blocks are those of the gguf package, bit for bit; those of a GGUF file stay its very bytes."""

import dataclasses
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import (
    BLOCK,
    ENCODINGS,
    ConfigError,
    EagerExecutionContext,
    Encoding,
    InputError,
    MappingWeights,
    TensorSpec,
)
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.gguf_files import write_gguf
from transformer_core import pack_weights
from transformer_core.checkpoints import DequantizedWeights, PackedWeights
from transformer_core.models import DecoderLM, weights_of
from transformer_core.models.gguf import GgufModel

_EACH: Final = pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=list(ENCODINGS))
_DRAWN: Final = settings(deadline=None, derandomize=True, database=None, max_examples=150)


def _kind(encoding: Encoding) -> GGMLQuantizationType:
    return GGMLQuantizationType[encoding.name.upper()]


def _block(kind: str, rng: np.random.Generator) -> np.ndarray:
    if kind == "zero":
        return rng.choice(np.array([0.0, -0.0], np.float32), BLOCK)
    if kind == "ties":  # multiples of half of what becomes 1
        return (rng.integers(-127, 128, BLOCK) / 2).astype(np.float32)
    if kind == "one size":  # which of them is the largest decides about Q4_0's sign
        return rng.choice(np.array([1.5, -1.5], np.float32), BLOCK)
    exponent = {"normal": 0, "small": -22, "subnormal half": -30, "subnormal": -140, "huge": 20}[kind]
    return np.ldexp(rng.standard_normal(BLOCK), exponent).astype(np.float32).clip(-500_000, 500_000)


_KINDS: Final = ("normal", "zero", "ties", "one size", "small", "subnormal half", "subnormal", "huge")


@_EACH
@_DRAWN
@given(kinds=st.lists(st.sampled_from(_KINDS), min_size=1, max_size=6), seed=st.integers(0, 2**32 - 1))
def test_packing_is_the_references(encoding: Encoding, kinds: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.concatenate([_block(kind, rng) for kind in kinds]).reshape(1, -1)
    with np.errstate(all="ignore"):
        expected = quants.quantize(rows, _kind(encoding))
    found = encoding.pack(rows)
    assert found.view(np.uint8).tobytes() == expected.tobytes()
    assert TensorSpec(found.shape, "i8") == encoding.packed(TensorSpec(rows.shape, "f32"))


@_EACH
@_DRAWN
@given(shape=st.tuples(st.integers(0, 3), st.integers(1, 4)), seed=st.integers(0, 2**32 - 1))
def test_unpacking_is_the_references(encoding: Encoding, shape: tuple[int, int], seed: int) -> None:
    """Any bytes: infinite scales and NaN, too."""
    rows, blocks = shape
    stored = np.random.default_rng(seed).integers(0, 256, (rows, blocks * encoding.block_bytes)).astype(np.uint8)
    found = encoding.unpacked(stored.view(np.int8))
    assert (found.shape, found.dtype) == ((rows, blocks * BLOCK), np.float32)
    if rows:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found, quants.dequantize(stored, _kind(encoding)))


def _case(**config: Any) -> GoldenCase:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16}
    llama = CASES["llama_gqa"]
    return dataclasses.replace(llama, config={**llama.config, **sizes, "num_key_value_heads": 2, **config})


@_EACH
def test_a_files_blocks_stay_and_others_are_packed_anew(encoding: Encoding, tmp_path: Path) -> None:
    """Rows of queries and keys change places, whole."""
    other = next(each for each in ENCODINGS.values() if each is not encoding)
    stored = write_gguf(
        tmp_path / "model.gguf", _case(), pack=lambda key, _: _kind(other if "ffn_gate" in key else encoding)
    )
    with GgufModel(tmp_path / "model.gguf") as file:
        model = DecoderLM(file.config())
        pack_weights(model, encoding, model.dtype)
        weights = weights_of(model, file)
        assert isinstance(weights, PackedWeights)
        down, gate = "model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.gate_proj.weight"
        assert (weights.kept(down), weights.kept(gate)) == (True, False)
        raw = file.read_packed("blk.1.ffn_down.weight")
        assert weights.read(down).tobytes() == raw.tobytes()
        assert weights.read_rows(down, 5, 31).tobytes() == raw[5:31].tobytes()
        again = quants.quantize(stored["blk.1.ffn_gate.weight"], _kind(encoding))
        assert weights.read(gate).tobytes() == again.tobytes()
        assert weights.read_rows(gate, 3, 40).tobytes() == again[3:40].tobytes()
        for part, heads in {"q": 4, "k": 2}.items():
            path = f"model.layers.0.self_attn.{part}_proj.weight"
            raw = file.read_packed(f"blk.0.attn_{part}.weight")
            turned = raw.reshape(heads, 8, 2, -1).swapaxes(1, 2).reshape(raw.shape)
            assert weights.kept(path)
            assert weights.read(path).tobytes() == turned.tobytes()
            assert weights.read_rows(path, 3, 21).tobytes() == turned[3:21].tobytes()
        exact = DequantizedWeights(weights)
        np.testing.assert_array_equal(exact.read(down), stored["blk.1.ffn_down.weight"])


@_EACH
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 9e6])
def test_what_no_block_holds_is_named(encoding: Encoding, value: float) -> None:
    array = np.zeros((4, 64), np.float32)
    array[2, 33] = value
    weights = PackedWeights(MappingWeights({"layer.weight": array}), {"layer.weight": encoding})
    with pytest.raises(InputError, match=rf"parameter 'layer\.weight': element \[2, 33\] .* {encoding.name} has no"):
        weights.read_rows("layer.weight", 1, 4)
    assert not encoding.unpacked(weights.read_rows("layer.weight", 0, 2)).any()


def test_a_model_of_which_nothing_can_be_packed_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", _case(hidden_size=40, intermediate_size=56, head_dim=6))
    with GgufModel(tmp_path / "model.gguf") as file:
        model = DecoderLM(file.config())
        with pytest.raises(ConfigError, match="no weight can be packed as q8_0: blocks of 32"):
            pack_weights(model, ENCODINGS["q8_0"], model.dtype)


def test_f64_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", _case())
    with GgufModel(tmp_path / "model.gguf") as file:
        model = DecoderLM(file.config(), "f64")
        with pytest.raises(ConfigError, match=r"packed weights \(q4_0\) go with f32, bf16 or f16; the model is f64"):
            pack_weights(model, ENCODINGS["q4_0"], model.dtype)


def test_logits_of_q8_0_are_near_those_of_f32(tmp_path: Path) -> None:
    """The issue's bound: NMSE 1e-3."""
    case = _case()
    write_gguf(tmp_path / "model.gguf", case)
    prompt: Any = np.array(case.prompt, np.int32)
    with GgufModel(tmp_path / "model.gguf") as file:
        whole, packed = DecoderLM(file.config()), DecoderLM(file.config())
        pack_weights(packed, ENCODINGS["q8_0"], packed.dtype)
        expected, found = (
            model(EagerExecutionContext(weights_of(model, file)), prompt).numpy().astype(np.float64)
            for model in (whole, packed)
        )
    assert 0 < ((found - expected) ** 2).sum() / (expected**2).sum() < 1e-3
