"""Every family with packed weights: what is packed is the reference's bits, what is not is known, logits stay near."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from lang_core import EagerExecutionContext, MappingWeights, encoding_named
from tests.goldens.packed_families import ALL_EXPERTS, CARRYING, FAMILIES, packed_case, packed_case_weights
from tests.goldens.packed_models import nmse
from tests.goldens.samples import in_turns
from transformer_core import pack_weights
from transformer_core.checkpoints import DequantizedWeights, PackedWeights
from transformer_core.models import DecoderLM, load_config, weights_of

# Parameters with two axes or more that are no matrix of a linear layer or an embedding.
_ROUTERS: Final = {"model.layers.*.mlp.gate.weight"}
_BERTS: Final = (
    "bert",
    "ernie",
    "big_bird",
    "megatron-bert",
    "rembert",
    "electra",
    "roberta",
    "xlm-roberta",
    "camembert",
    "data2vec-text",
    "roberta-prelayernorm",
    "xlm-roberta-xl",
)
_UNPACKED: Final[dict[str, set[str]]] = {
    "gpt2": {"model.embed_positions.weight"},
    **{name: {"model.embed_positions.weight"} for name in ("gpt_bigcode", "gpt_neo", "opt", "biogpt", "openai-gpt")},
    "gemma3n_text": {
        f"model.layers.*.altup.{name}.weight" for name in ("modality_router", "correction_coefs", "prediction_coefs")
    },
    "mixtral": _ROUTERS,
    "qwen3_moe": _ROUTERS,
    "qwen3_next": _ROUTERS | {"model.layers.*.linear_attn.conv1d.weight"},
    "qwen3_5_text": {"model.layers.*.linear_attn.conv1d.weight"},
    "qwen3_5_moe_text": _ROUTERS | {"model.layers.*.linear_attn.conv1d.weight"},
    "lfm2": {"model.layers.*.conv.conv.weight"},
    "lfm2_moe": _ROUTERS | {"model.layers.*.conv.conv.weight"},
    "mamba2": {"model.layers.*.mixer.conv1d.weight"},
    **{
        name: {"model.layers.*.mixer.conv1d.weight", "model.layers.*.mixer.A_log"} for name in ("mamba", "falcon_mamba")
    },
    "jamba": _ROUTERS | {"model.layers.*.mamba.conv1d.weight", "model.layers.*.mamba.A_log"},
    "bamba": {"model.layers.*.mamba.conv1d.weight"},
    "granitemoehybrid": _ROUTERS | {"model.layers.*.mamba.conv1d.weight"},
    "falcon_h1": {"model.layers.*.mamba.conv1d.weight"},
    "nemotron_h": {"model.layers.*.mixer.conv1d.weight", "model.layers.*.mixer.gate.weight"},
    "gpt_oss": _ROUTERS | {f"model.layers.*.mlp.experts.{name}_proj_bias" for name in ("gate", "up", "down")},
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "glm4_moe_lite"), _ROUTERS | {"model.layers.*.self_attn.kv_b_proj.weight"}
    ),
    **dict.fromkeys(
        ("glm4_moe", "qwen2_moe", "minimax_m2", "ernie4_5_moe", "llama4_text", "phimoe", "olmoe", "dots1"), _ROUTERS
    ),
    **dict.fromkeys(("granitemoe", "granitemoeshared", "hunyuan_v1_moe", "solar_open"), _ROUTERS),
    **dict.fromkeys(("flex_olmo", "exaone_moe", "afmoe", "granitemoe_swa", "mellum", "hy_v3"), _ROUTERS),
    **{name: {"model.layers.*.self_attn.kv_b_proj.weight"} for name in ("minicpm3", "youtu")},
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), _ROUTERS | {"model.layers.*.self_attn.kv_b_proj.weight"}),
    "axk1": _ROUTERS | {"model.layers.*.self_attn.kv_b_proj.weight"},
    "lfm3": {"model.layers.*.conv.conv.weight"},
    **dict.fromkeys(
        ("kolibri1", "flint", "cohere2_moe", "aria_text", "dbrx", "laguna", "mimo_v2_flash", "minimax"), _ROUTERS
    ),
    "bert-generation": {"model.embed_positions.weight"},
    "roformer": {"model.embed_types.weight"},
    **{name: {"model.embed_positions.weight", "model.embed_types.weight"} for name in _BERTS},
}


def _models(
    name: str, directory: Path, encoding: str = "q8_0", chosen: Mapping[str, Any] = MappingProxyType({})
) -> tuple[DecoderLM, DecoderLM]:
    """The model, and the same packed; experts are chosen as ``chosen`` says, where it does."""
    changes = {key: chosen[key] for key in ALL_EXPERTS.get(name, {}) if key in chosen}
    (directory / "config.json").write_text(json.dumps({**packed_case(name).config, **changes}))
    config = load_config(directory)
    whole, packed = DecoderLM(config), DecoderLM(config)
    pack_weights(packed, encoding_named(encoding), packed.dtype)
    return whole, packed


def _pattern(path: str) -> str:
    return re.sub(r"\.\d+\.", ".*.", path)


@pytest.mark.parametrize(("name", "encoding"), in_turns(FAMILIES, ("q8_0", "q4_0")))
def test_what_is_packed_is_the_references_bits(name: str, encoding: str, tmp_path: Path) -> None:
    """Encodings of fused, transposed and renamed matrices are those of their parts."""
    source = MappingWeights(packed_case_weights(packed_case(name)))
    whole, packed = _models(name, tmp_path, encoding)
    expected, actual = weights_of(whole, source), weights_of(packed, source)
    assert isinstance(actual, PackedWeights)
    left: set[str] = set()
    for path, parameter in packed.named_parameters():
        if parameter.encoding is None:
            left |= {_pattern(path)} if parameter.spec.ndim > 1 else set()
            assert actual.read(path).tobytes() == expected.read(path).tobytes()
            continue
        bits = quants.quantize(expected.read(path).astype(np.float32), GGMLQuantizationType[encoding.upper()])
        assert actual.read(path).tobytes() == bits.tobytes(), path
        start, stop = len(bits) // 3, len(bits) // 3 + len(bits) // 2
        assert actual.read_rows(path, start, stop).tobytes() == bits[start:stop].tobytes(), path
    assert left == _UNPACKED.get(name, set()), f"_UNPACKED[{name!r}]: list what the family leaves unpacked"


_PARTS: Final[dict[str, dict[str, tuple[str, Any]]]] = {
    # N 4, K 2, H 16: 64 rows of queries, 32 of keys, 32 of values.
    "phi3": {
        "self_attn.k_proj": ("model.layers.1.self_attn.qkv_proj.weight", lambda x: x[64:96]),
        "self_attn.v_proj": ("model.layers.1.self_attn.qkv_proj.weight", lambda x: x[96:]),
        "mlp.up_proj": ("model.layers.1.mlp.gate_up_proj.weight", lambda x: x[96:]),
    },
    "gpt2": {
        "self_attn.k_proj": ("transformer.h.1.attn.c_attn.weight", lambda x: x[:, 64:128].T),
        "mlp.down_proj": ("transformer.h.1.mlp.c_proj.weight", lambda x: x.T),
    },
    # N 4, K 1, H 16: 64 rows of queries, 16 of keys, 16 of values.
    "gpt_bigcode": {
        "self_attn.q_proj": ("transformer.h.1.attn.c_attn.weight", lambda x: x[:64]),
        "self_attn.k_proj": ("transformer.h.1.attn.c_attn.weight", lambda x: x[64:80]),
        "self_attn.v_proj": ("transformer.h.1.attn.c_attn.weight", lambda x: x[80:]),
    },
    "gpt_neox": {
        "self_attn.v_proj": (
            "gpt_neox.layers.1.attention.query_key_value.weight",
            lambda x: x.reshape(4, 3, 16, 64)[:, 2].reshape(64, 64),
        ),
    },
}


@pytest.mark.parametrize("name", _PARTS)
def test_parts_of_fused_and_transposed_matrices(name: str, tmp_path: Path) -> None:
    """Written down here once more, from the checkpoint's own tensors."""
    stored = packed_case_weights(packed_case(name))
    _, packed = _models(name, tmp_path)
    actual = weights_of(packed, MappingWeights(stored))
    for part, (key, cut) in _PARTS[name].items():
        bits = quants.quantize(np.ascontiguousarray(cut(stored[key])), GGMLQuantizationType.Q8_0)
        assert actual.read(f"model.layers.1.{part}.weight").tobytes() == bits.tobytes(), part


@pytest.mark.parametrize(("name", "tokens"), in_turns(ALL_EXPERTS, (1, 3, 8)))
def test_packed_experts_are_the_unpacked_ones(name: str, tokens: int, tmp_path: Path) -> None:
    """Pairs of one token, of a few, and a prompt by experts; as many experts as the family's case chooses."""
    whole, packed = _models(name, tmp_path, "q4_0", FAMILIES[name].config)
    weights = weights_of(packed, MappingWeights(packed_case_weights(packed_case(name))))
    assert isinstance(weights, PackedWeights)
    ids: Any = np.array(FAMILIES[name].prompt[:1], np.int32)[:, :tokens]
    exact = whole(EagerExecutionContext(DequantizedWeights(weights)), ids).numpy()
    assert nmse(packed(EagerExecutionContext(weights), ids).numpy(), exact) <= 1e-10


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_near_those_of_f32(name: str, tmp_path: Path) -> None:
    """The issue's bound.

    Random gated delta nets and state spaces carry errors along and make them larger: packed embeddings alone, whose own
    NMSE is 2e-5, are 1e-3 in the logits. There a multiple of bf16's distance is the bound, as all other families keep
    to, too.
    """
    case, source = packed_case(name), MappingWeights(packed_case_weights(packed_case(name)))
    ids: Any = np.array(case.prompt, np.int32)
    whole, packed = _models(name, tmp_path)
    exact, short, actual = (
        model(EagerExecutionContext(weights_of(model, source)), ids).numpy()
        for model in (whole, DecoderLM(whole.config, "bf16"), packed)
    )
    assert 0 < nmse(actual, exact) <= 6 * nmse(short, exact)
    if name not in CARRYING:
        assert nmse(actual, exact) <= 1e-3
