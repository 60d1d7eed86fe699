"""Fields of further families of Llama's kind, and of families that only their authors' code has."""

from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._rope_config import RopeKind
from transformer_core.models import DecoderConfig

_SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "vocab_size": 50,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "num_key_value_heads": 2}
_GRANITE = {**_SIZES, "num_key_value_heads": 2}
_QWEN = {**_SIZES, "kv_channels": 6, "seq_length": 64}
_CHATGLM = {"hidden_size": 24, "num_attention_heads": 4, "num_layers": 2, "padded_vocab_size": 50}
_CHATGLM |= {"ffn_hidden_size": 30, "kv_channels": 8, "seq_length": 64}


def read(name: str, sizes: dict[str, Any], **changes: Any) -> DecoderConfig:
    return DecoderConfig.from_hf({"architectures": [name], **sizes, **changes})


def test_internlm3_takes_both_names_of_its_biases():
    config = read("InternLM3ForCausalLM", _SIZES, qkv_bias=True, bias=False, head_dim=6, num_key_value_heads=2)
    assert (config.qkv_bias, config.output_bias, config.mlp_bias) == (True, False, False)
    again = read("InternLM3ForCausalLM", _SIZES, attention_bias=True, mlp_bias=True, num_key_value_heads=2)
    assert (again.qkv_bias, again.output_bias, again.mlp_bias, again.head_size) == (True, True, True, 128)


def test_nanochat():
    config = read("NanoChatForCausalLM", _SIZES)
    assert (config.norm, config.rope.clockwise, config.embedding_norm) == (NormKind.RMS_WITHOUT_WEIGHT, True, True)
    assert (config.logits_softcap, config.qk_norm_weighted) == (15.0, False)


def test_layers_with_windows_rotate_and_others_do_not():
    for name, further in (("ExaoneMoeForCausalLM", {"sliding_window_pattern": 3}), ("AfmoeForCausalLM", {})):
        config = read(name, {**_SIZES, **_EXPERTS}, sliding_window=5, global_attn_every_n_layers=3, **further)
        assert config.windows == (5, 5, None)
        assert config.rope_kinds == (RopeKind.MODEL, RopeKind.MODEL, RopeKind.NONE)
        assert config.experts is not None
        assert config.experts.layers == (False, True, True)


def test_granite_has_a_base_of_rope_for_each_layer():
    config = read("GraniteSWAForCausalLM", _GRANITE, layer_rope_theta=[0, 500.0, 7.0], sliding_window=5)
    assert config.rope_kinds == (RopeKind.NONE, RopeKind.MODEL, RopeKind.LOCAL)
    assert config.local_rope is not None
    assert (config.rope.base, config.local_rope.base) == (500.0, 7.0)
    assert config.windows == (None, 5, 5)
    assert read("GraniteSWAForCausalLM", _GRANITE).local_rope is None


def test_mellum_has_a_rope_for_each_kind_of_layer():
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    config = read("MellumForCausalLM", {**_SIZES, **_EXPERTS}, layer_types=kinds)
    assert config.rope_kinds == (RopeKind.LOCAL, RopeKind.MODEL, RopeKind.LOCAL)
    assert config.local_rope is not None
    assert (config.rope.base, config.local_rope.base) == (5e5, 1e4)
    alone = read("MellumForCausalLM", {**_SIZES, **_EXPERTS}, layer_types=["sliding_attention"] * 3)
    assert (alone.rope.base, alone.local_rope) == (1e4, None)


def test_gpt_1_norms_sums_and_has_the_gelu_by_tanh():
    config = read("OpenAIGPTLMHeadModel", {"n_embd": 24, "n_head": 4, "n_layer": 2, "vocab_size": 50})
    assert (config.post_norm, config.final_norm, config.activation) == (True, False, Activation.GELU_TANH)
    assert config.intermediate == 96


def test_baichuan_and_qwen():
    assert read("BaichuanForCausalLM", _SIZES).kv_heads == 4
    qwen = read("QWenLMHeadModel", _QWEN, rotary_emb_base=500.0)
    assert (qwen.intermediate, qwen.rope.base, qwen.rope.reach, qwen.qkv_bias) == (20, 500.0, 64, True)


@pytest.mark.parametrize(
    ("name", "sizes", "changes", "message"),
    [
        ("AfmoeForCausalLM", {**_SIZES, **_EXPERTS}, {"attention_bias": True}, "expected false: the gate of attention"),
        (
            "GraniteSWAForCausalLM",
            _GRANITE,
            {"layer_rope_theta": [5, 6, 7]},
            "'layer_rope_theta': expected a list of 3",
        ),
        ("GraniteSWAForCausalLM", _GRANITE, {"layer_rope_theta": [5, 1, 0]}, "0 or above 1, two of these at most"),
        ("GraniteSWAForCausalLM", _GRANITE, {"layer_rope_theta": [5, 6]}, "'layer_rope_theta': expected a list of 3"),
        (
            "MellumForCausalLM",
            {**_SIZES, **_EXPERTS},
            {"rope_parameters": {"full_attention": {"rope_theta": 5.0, "truncate": False}}},
            "full_attention: field 'truncate': expected true, or no such field",
        ),
        ("OpenAIGPTLMHeadModel", {"n_embd": 24}, {"afn": "gelu_new"}, "'afn': expected"),
        ("BitNetForCausalLM", _SIZES, {"head_dim": 8}, "'head_dim': expected hidden_size / num_attention_heads, for"),
        ("BaichuanForCausalLM", _SIZES, {"max_position_embeddings": None}, r"models without it \(13B\) have ALiBi"),
        ("QWenLMHeadModel", _QWEN, {"kv_channels": 8}, r"'kv_channels': expected hidden_size / num_attention_heads"),
        ("QWenLMHeadModel", _QWEN, {"no_bias": False}, "'no_bias': expected true: further biases are not built"),
        ("QWenLMHeadModel", _QWEN, {"rotary_pct": 0.5}, "'rotary_pct': expected 1: whole heads are rotated"),
        ("QWenLMHeadModel", _QWEN, {"intermediate_size": 41}, "'intermediate_size': expected an even number"),
        ("MiniCPMForCausalLM", _SIZES, {"sparse_config": {}}, "'sparse_config': expected null, or no such field"),
        ("MiniCPMForCausalLM", _SIZES, {"num_experts": 8}, "'num_experts': expected 0, or no such field: MiniCPM-MoE"),
        ("ChatGLMModel", _CHATGLM, {"rmsnorm": False}, "'rmsnorm': expected true, or no such field; found False"),
        ("ChatGLMModel", _CHATGLM, {"kv_channels": 6}, "'kv_channels': expected a multiple of 4: half of a head"),
        (
            "ChatGLMModel",
            _CHATGLM,
            {"multi_query_attention": True, "multi_query_group_num": 3},
            "a divisor of num_attention_heads",
        ),
    ],
)
def test_what_is_refused(name: str, sizes: dict[str, Any], changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        read(name, sizes, **changes)
