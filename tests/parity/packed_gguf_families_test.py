"""Packed GGUF files of every architecture: matrices stay the blocks that they are, whatever they are fused with."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from lang_core import ENCODINGS, WeightSource
from tests.goldens.cases import GoldenCase
from tests.goldens.gguf_cases import GGUF_CASES
from tests.goldens.gguf_files import write_gguf
from tests.goldens.samples import LONG, in_turns
from transformer_core import keep_packed, pack_weights
from transformer_core.checkpoints import DequantizedWeights, PackedWeights
from transformer_core.models import DecoderLM, stored_encodings, weights_of
from transformer_core.models.gguf import GgufModel

# The first case of each architecture, in sizes of whole blocks.
_FAMILIES: Final = {case.config["model_type"]: case for case in reversed(GGUF_CASES.values())}
_SIZES: Final[dict[str, Any]] = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "moe_intermediate_size": 32, "n_embd": 64, "n_inner": 96, "q_lora_rank": 32, "kv_lora_rank": 32, "v_head_dim": 32,
    "hidden_size_per_layer_input": 32, "laurel_rank": 32,
    "per_layer_config": {"2": {"head_dim": 24}, "4": {"head_dim": 24}},
}  # fmt: skip
# Rows of a table that no product is made with; routers, whose scores decide.
_DEQUANTISED: Final = {
    "gpt2": {"embed_positions"},
    "gpt_bigcode": {"embed_positions"},
    "minicpm3": {"kv_b_proj"},
    "gemma3n_text": {"modality_router"},
    "mixtral": {"gate"},
    "qwen3_moe": {"gate"},
    **{name: {"gate", "kv_b_proj"} for name in ("deepseek_v2", "deepseek_v3")},
    "gpt_oss": {"gate"},
    **{
        name: {"gate"}
        for name in (
            "glm4_moe",
            "qwen2_moe",
            "minimax_m2",
            "ernie4_5_moe",
            "phimoe",
            "llama4_text",
            "lfm2_moe",
            "granitemoehybrid",
            "nemotron_h",
            "olmoe",
            "dots1",
            "granitemoe",
            "granitemoeshared",
            "hunyuan_v1_moe",
            "exaone_moe",
            "afmoe",
            "jamba",
            "dbrx",
            "mimo_v2_flash",
        )
    },
}


def _case(name: str, given: Mapping[str, Any] = _SIZES) -> GoldenCase:
    case = _FAMILIES[name]
    sizes: dict[str, Any] = {key: size for key, size in given.items() if case.config.get(key) is not None}
    if name == "gpt2":
        sizes["n_inner"] = given["n_inner"]
    if name in ("deepseek_v2", "deepseek_v3"):
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    if name == "minicpm3":
        sizes |= {"num_key_value_heads": 4, "head_dim": case.config["qk_rope_head_dim"], "v_head_dim": 16}
    if name == "dbrx":
        feed = {**case.config["ffn_config"], "ffn_hidden_size": 32}
        attention = {**case.config["attn_config"], "kv_n_heads": 2}
        sizes |= {"d_model": 64, "n_heads": 4, "ffn_config": feed, "attn_config": attention}
    if name == "mimo_v2_flash":
        sizes |= {"num_key_value_heads": 1, "v_head_dim": 8, "head_dim": 12}
    if name == "falcon":
        sizes |= {"num_kv_heads": 2, "ffn_hidden_size": 96}
    if name == "mpt":
        sizes |= {"d_model": 64, "n_heads": 4}
    if name == "bloom":
        sizes["n_head"] = 4
    config = {**case.config, **sizes}
    return dataclasses.replace(case, config=config | _state_heads(name, config))


def _state_heads(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the heads of 16 dims that the channels of a Mamba-2 layer make."""
    if name == "mamba2":
        return {"num_heads": config["expand"] * config["hidden_size"] // 16, "head_dim": 16}
    if name == "granitemoehybrid":
        return {"mamba_n_heads": config["mamba_expand"] * config["hidden_size"] // 16, "mamba_d_head": 16}
    return {}


@pytest.mark.parametrize(("name", "packed_as"), in_turns(_FAMILIES, ("q8_0", "q4_0", "q5_1")))
def test_every_matrix_stays_as_it_is(name: str, packed_as: str, tmp_path: Path) -> None:
    kind, encoding = GGMLQuantizationType[packed_as.upper()], ENCODINGS[packed_as]

    def pack(key: str, shape: tuple[int, ...]) -> GGMLQuantizationType | None:
        return kind if shape[-1] % 32 == 0 and "norm" not in key else None  # as llama.cpp

    write_gguf(tmp_path / "model.gguf", _case(name), pack=pack)
    with GgufModel(tmp_path / "model.gguf") as file:
        whole, packed = DecoderLM(file.config()), DecoderLM(file.config())
        pack_weights(packed, encoding, packed.dtype)
        _check_kept(name, weights_of(packed, file), weights_of(whole, file), packed)


def test_experts_of_early_files_stay_as_they_are(tmp_path: Path) -> None:
    """One tensor per expert; where their encodings differ, they are one packed parameter all the same, quantised."""

    def kind(key: str, shape: tuple[int, ...]) -> GGMLQuantizationType | None:
        if shape[-1] % 32:
            return None
        odd = key == "blk.1.ffn_up.2.weight"
        return GGMLQuantizationType.Q4_0 if odd else GGMLQuantizationType.Q8_0

    write_gguf(tmp_path / "model.gguf", _case("mixtral"), pack=kind, stack_experts=False)
    with GgufModel(tmp_path / "model.gguf") as file:
        packed = DecoderLM(file.config())
        pack_weights(packed, ENCODINGS["q8_0"], packed.dtype)
        weights = weights_of(packed, file)
        assert isinstance(weights, PackedWeights)
        mixed = "model.layers.1.mlp.experts.up_proj"
        matrices = {path for path, parameter in packed.named_parameters() if parameter.encoding}
        assert {path for path in matrices if not weights.kept(path)} == {mixed}
        for expert in range(_case("mixtral").config["num_local_experts"]):
            alone = file.read_packed(f"blk.0.ffn_up.{expert}.weight")
            assert weights.read("model.layers.0.mlp.experts.up_proj")[expert].tobytes() == alone.tobytes()
        routers = {f"model.layers.{layer}.mlp.gate.weight" for layer in range(3)}
        assert stored_encodings(packed, file).keys() == matrices - {mixed} | routers


def _check_kept(name: str, actual: WeightSource, expected: WeightSource, packed: DecoderLM) -> None:
    """Checks that packed matrices have the file's bytes, and that the unpacked ones are the known ones."""
    assert isinstance(actual, PackedWeights)
    exact, left = DequantizedWeights(actual), set[str]()
    for path, parameter in packed.named_parameters():
        if parameter.encoding is not None:
            assert actual.kept(path), path
        elif actual.encoding(path) is not None:
            left.add(path)
        np.testing.assert_array_equal(exact.read(path), expected.read(path), err_msg=path)
    kinds = _DEQUANTISED.get(name, set())
    assert all(kinds & set(path.split(".")) for path in left), left
    assert all(any(kind in path.split(".") for path in left) for kind in kinds), left


_SUPER_SIZES: Final = {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 16,
    "moe_intermediate_size": 256, "n_embd": 256, "n_inner": 512, "q_lora_rank": 256, "kv_lora_rank": 256,
    "v_head_dim": 16,
}  # fmt: skip


@pytest.mark.parametrize("name", list(_FAMILIES)[:: 1 if LONG else 4])
def test_every_super_block_stays_as_it_is(name: str, tmp_path: Path) -> None:
    """Matrices of two encodings, as the parity of their names' sums says."""

    def kind(key: str, shape: tuple[int, ...]) -> GGMLQuantizationType | None:
        if shape[-1] % 256 or "norm" in key:
            return None
        return GGMLQuantizationType.Q4_K if sum(key.encode()) % 2 else GGMLQuantizationType.Q6_K

    write_gguf(tmp_path / "model.gguf", _case(name, _SUPER_SIZES), pack=kind)
    with GgufModel(tmp_path / "model.gguf") as file:
        whole, packed = DecoderLM(file.config()), DecoderLM(file.config())
        keep_packed(packed, stored_encodings(packed, file), packed.dtype)
        _check_kept(name, weights_of(packed, file), weights_of(whole, file), packed)
        encodings = (parameter.encoding for _, parameter in packed.named_parameters())
        kinds = {encoding.name for encoding in encodings if encoding is not None}
        assert kinds == {"q4_k", "q6_k"}
