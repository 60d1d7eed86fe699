"""Blocks of a GGUF file stay its very bytes; weights of other files become the gguf package's blocks."""

import dataclasses
import tracemalloc
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from lang_core import (
    ENCODINGS,
    CheckpointError,
    ConfigError,
    EagerExecutionContext,
    Encoding,
    InputError,
    MappingWeights,
    MatrixRows,
    quantizable,
)
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.gguf_files import write_gguf
from transformer_core import keep_packed, pack_weights
from transformer_core.checkpoints import DequantizedWeights, PackedWeights
from transformer_core.checkpoints.gguf import GgufFile
from transformer_core.models import DecoderLM, stored_encodings, weights_of
from transformer_core.models.gguf import GgufModel

_EACH: Final = pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=list(ENCODINGS))
_PLAIN: Final = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "mxfp4")  # which the gguf package writes, too
_SAME: Final = pytest.mark.parametrize("encoding", [ENCODINGS[name] for name in _PLAIN], ids=_PLAIN)
_QUANTIZED: Final = pytest.mark.parametrize("encoding", [ENCODINGS[name] for name in quantizable()], ids=quantizable())


def _kind(encoding: Encoding) -> GGMLQuantizationType:
    return GGMLQuantizationType[encoding.name.upper()]


def _case(**config: Any) -> GoldenCase:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16}
    llama = CASES["llama_gqa"]
    return dataclasses.replace(llama, config={**llama.config, **sizes, "num_key_value_heads": 2, **config})


@_SAME
def test_a_files_blocks_stay_and_others_are_packed_anew(encoding: Encoding, tmp_path: Path) -> None:
    """Rows of queries and keys change places, whole."""
    other = next(candidate for candidate in ENCODINGS.values() if candidate is not encoding)
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


@_QUANTIZED
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 9e6])
def test_what_no_block_holds_is_named(encoding: Encoding, value: float) -> None:
    array = np.zeros((4, max(64, encoding.block)), np.float32)
    array[2, 33] = value
    if encoding.quantizer is not None and abs(value) <= encoding.quantizer.largest:
        assert encoding.pack(array)[2].any()
        return
    weights = PackedWeights(MappingWeights({"layer.weight": array}), {"layer.weight": encoding})
    with pytest.raises(InputError, match=rf"parameter 'layer\.weight': element \[2, 33\] .* {encoding.name} has no"):
        weights.read_rows("layer.weight", 1, 4)
    assert not encoding.unpacked(weights.read_rows("layer.weight", 0, 2)).any()


@_QUANTIZED
def test_rows_are_the_same_however_many_are_asked_for(encoding: Encoding) -> None:
    """More than are held in f32 at a time, and of f64."""
    array = np.random.default_rng(7).standard_normal((3000, 512))
    weights = PackedWeights(MappingWeights({"layer.weight": array}), {"layer.weight": encoding})
    whole = encoding.pack(array)
    assert weights.read("layer.weight").tobytes() == whole.tobytes()
    assert weights.read_rows("layer.weight", 17, 2900).tobytes() == whole[17:2900].tobytes()
    with pytest.raises(CheckpointError, match=r"rows 5 to 3001 of tensor 'layer\.weight' asked, it has 3000"):
        weights.read_rows("layer.weight", 5, 3001)
    array[2999, 3] = 1e300
    with pytest.raises(InputError, match=r"element \[2999, 3\] .* is inf, which"):
        weights.read_rows("layer.weight", 0, 3000)


@_QUANTIZED
def test_memory_is_some_rows_whatever_the_size(encoding: Encoding, tmp_path: Path) -> None:
    """The packed rows that are asked for, and beside them 4 MiB of f32 and what is computed of some blocks."""
    rows, columns, asked = 1 << 13, 1 << 10, 1 << 12
    with open(tmp_path / "raw", "wb") as file:
        file.truncate(rows * columns * 2)
    mapped = np.memmap(tmp_path / "raw", np.uint16, "r").view(ml_dtypes.bfloat16).reshape(rows, columns)
    weights = PackedWeights(MappingWeights({"w": mapped}), {"w": encoding})
    peaks = []
    for count in (asked // 4, asked):
        tracemalloc.start()
        try:
            actual = weights.read_rows("w", 0, count)
            peaks.append(tracemalloc.get_traced_memory()[1] - actual.nbytes)
        finally:
            tracemalloc.stop()
    assert max(peaks) < 12 << 20
    assert abs(peaks[1] - peaks[0]) < 1 << 20


def test_what_is_not_packed_is_read_as_a_matrix_from_any_source() -> None:
    """Reads from a source that can read rows of matrices, and from one that cannot."""
    arrays = {"experts": np.arange(120.0).reshape(4, 5, 6), "layer": np.ones((2, 32), np.float32)}
    weights = PackedWeights(MappingWeights(arrays), {"layer": ENCODINGS["q8_0"]})
    assert not isinstance(MappingWeights(arrays), MatrixRows)
    for source in (weights, PackedWeights(weights, {})):
        actual = source.read_matrix_rows("experts", 3, 14)
        np.testing.assert_array_equal(actual, arrays["experts"].reshape(20, 6)[3:14])
        assert source.read_matrix_rows("layer", 1, 2).tobytes() == ENCODINGS["q8_0"].pack(arrays["layer"])[1:].tobytes()


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


def test_nothing_stays_packed_of_a_file_without_blocks(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", _case())
    with GgufModel(tmp_path / "model.gguf") as file:
        model, wide = DecoderLM(file.config()), DecoderLM(file.config(), "f64")
        assert stored_encodings(model, file) == {}
        with pytest.raises(
            ConfigError, match=r"no matrix .* q8_0, q4_0, q4_1, .*, iq4_xs or mxfp4, .* as q8_0, q4_0, .* or mxfp4,"
        ):
            keep_packed(model, {}, model.dtype)
        with pytest.raises(ConfigError, match=r"packed weights \(as stored\) go with f32, bf16 or f16"):
            keep_packed(wide, {"model.embed_tokens.weight": ENCODINGS["q8_0"]}, wide.dtype)


def test_every_matrix_stays_in_its_own_encoding(tmp_path: Path) -> None:
    """Rows that are put in another order, too; of other types is what the gguf package makes of them."""
    kinds = {
        "attn_q": "Q4_K",
        "attn_k": "Q6_K",
        "ffn_down": "Q8_0",
        "attn_v": "IQ4_XS",
        "ffn_up": "IQ3_S",
        "token_embd": "Q6_K",
    }

    def pack(key: str, _: tuple[int, ...]) -> GGMLQuantizationType | None:
        match = next((kind for name, kind in kinds.items() if name in key), None)
        return None if match is None else GGMLQuantizationType[match]

    stored = write_gguf(tmp_path / "model.gguf", _case(hidden_size=256, head_dim=64), pack=pack)
    with GgufModel(tmp_path / "model.gguf") as file:
        model = DecoderLM(file.config())
        keep_packed(model, stored_encodings(model, file), model.dtype)
        weights = weights_of(model, file)
        assert isinstance(weights, PackedWeights)
        layer, exact = "model.layers.1.", DequantizedWeights(weights)
        parts = {"self_attn.q_proj": "q4_k", "self_attn.k_proj": "q6_k", "mlp.down_proj": "q8_0"}
        parts |= {"self_attn.v_proj": "iq4_xs", "self_attn.o_proj": None, "mlp.up_proj": None}
        for part, name in parts.items():
            actual = weights.packing(f"{layer}{part}.weight")
            assert (actual and actual.name) == name, part
        down, up = (f"{layer}mlp.{part}_proj.weight" for part in ("down", "up"))
        np.testing.assert_array_equal(exact.read(down), stored["blk.1.ffn_down.weight"])
        np.testing.assert_array_equal(weights.read(up), stored["blk.1.ffn_up.weight"])
        assert weights.encoding(up) == "iq3_s"
        turned = stored["blk.1.attn_q.weight"].reshape(4, 32, 2, 256).swapaxes(1, 2).reshape(256, 256)
        np.testing.assert_array_equal(exact.read(f"{layer}self_attn.q_proj.weight"), turned)


@_EACH
def test_a_block_with_a_scale_that_is_no_number_is_named(encoding: Encoding, tmp_path: Path) -> None:
    kind, path = _kind(encoding), tmp_path / "model.gguf"
    write_gguf(path, _case(hidden_size=256, intermediate_size=256, head_dim=64), pack=lambda *_: kind)
    layout = encoding.layout
    with GgufFile(path) as file:
        rows = file.read_packed("blk.1.ffn_up.weight").copy()
    content = path.read_bytes()
    begin = content.index(rows.tobytes()) + 7 * rows.shape[1]
    begin += rows.shape[1] - encoding.block_bytes  # the last block of the eighth row
    for place, value in (
        ((layout.scale, b"\xff"),) if layout.exponent else ((place, b"\x01\x7e") for place in layout.halves)
    ):
        start = begin + place
        path.write_bytes(content[:start] + value + content[start + len(value) :])
        with GgufModel(path) as file:
            model = DecoderLM(file.config())
            keep_packed(model, stored_encodings(model, file), model.dtype)
            weights, name = weights_of(model, file), "model.layers.1.mlp.up_proj.weight"
            weights.read_rows(name, 8, 20)
            block = 256 // encoding.block - 1
            with pytest.raises(
                CheckpointError, match=rf"'{name}': block \[7, {block}\] of {encoding.name} in .*model.gguf"
            ):
                weights.read_rows(name, 5, 20)


def test_what_is_not_so_in_the_file_is_not_made_so() -> None:
    read_only = dataclasses.replace(ENCODINGS["q4_k"], name="acme_q4", quantizer=None)
    weights = PackedWeights(MappingWeights({"w": np.ones((3, 256), np.float32)}), {"w": read_only})
    with pytest.raises(InputError, match=r"'w': acme_q4 is wanted and .* has it unpacked: nothing here"):
        weights.read("w")


def test_logits_of_q8_0_are_near_those_of_f32(tmp_path: Path) -> None:
    """The issue's bound: NMSE 1e-3."""
    case = _case()
    write_gguf(tmp_path / "model.gguf", case)
    prompt: Any = np.array(case.prompt, np.int32)
    with GgufModel(tmp_path / "model.gguf") as file:
        whole, packed = DecoderLM(file.config()), DecoderLM(file.config())
        pack_weights(packed, ENCODINGS["q8_0"], packed.dtype)
        expected, actual = (
            model(EagerExecutionContext(weights_of(model, file)), prompt).numpy().astype(np.float64)
            for model in (whole, packed)
        )
    assert 0 < ((actual - expected) ** 2).sum() / (expected**2).sum() < 1e-3
