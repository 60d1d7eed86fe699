import math

import pytest

from lang_core import ConfigError
from transformer_core.family._config import DecoderConfig
from transformer_core.family._layer_configs import ExpertsConfig, LatentConfig
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._moe import ClampedGate
from transformer_core.layers._rope_config import RopeKind, RopeMode
from transformer_core.layers._rope_scaling import LinearScaling, NoScaling
from transformer_core.layers._routing import Routing, Scoring
from transformer_core.models._config_testing import read


def test_mixtral():
    values = {"num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2}
    config = read("Mixtral", **values)
    assert config.experts == ExpertsConfig(routing=Routing(experts=8, chosen=2), inner=40, layers=(True,) * 3)
    assert config.rope.base == 1e6
    assert config.windows == (None,) * 3
    assert read("Mixtral", **values, sliding_window=8).windows == (8,) * 3


QWEN3_MOE = {"num_key_value_heads": 2, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16}


@pytest.mark.parametrize(
    ("changes", "sparse"),
    [
        ({}, (True, True, True)),
        ({"mlp_only_layers": [1]}, (True, False, True)),
        ({"decoder_sparse_step": 2}, (False, True, False)),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1]}, (False, False, False)),
    ],
)
def test_qwen3_moe(changes, sparse):
    config = read("Qwen3Moe", **QWEN3_MOE, **changes)
    assert config.experts is not None
    assert config.experts.layers == sparse
    assert not config.experts.routing.normalized
    assert (config.qk_norm, config.head_size) == (True, 4)


DEEPSEEK = {
    "first_k_dense_replace": 1,
    "kv_lora_rank": 5,
    "moe_intermediate_size": 16,
    "n_group": 2,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "num_key_value_heads": 6,
    "q_lora_rank": 7,
    "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 4,
    "topk_group": 1,
    "v_head_dim": 9,
}


def test_deepseek_v3():
    config = read("DeepseekV3", **DEEPSEEK)
    assert config.latent == LatentConfig(rank=5, query_rank=7, plain_size=3, value_size=9, scale=7**-0.5)
    assert config.experts is not None
    assert (config.experts.layers, config.experts.shared) == ((False, True, True), 32)
    assert config.experts.routing == Routing(
        experts=8, chosen=3, scoring=Scoring.SIGMOID, scale=2.5, corrected=True, groups=2, chosen_groups=1
    )
    assert (config.rope.rotated, config.rope.mode) == (4, RopeMode.INTERLEAVED)
    assert read("DeepseekV3", **DEEPSEEK, rope_interleave=False).rope.mode is RopeMode.SPLIT_HALF
    uncompressed = read("DeepseekV3", **{**DEEPSEEK, "q_lora_rank": "null"}).latent
    assert uncompressed is not None
    assert uncompressed.query_rank is None


def test_deepseek_v3_scales_its_scores_by_yarns_temperature():
    scaling = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 32}
    plain = read("DeepseekV3", **DEEPSEEK, rope_scaling=scaling).latent
    stretched = read("DeepseekV3", **DEEPSEEK, rope_scaling={**scaling, "mscale_all_dim": 0.5}).latent
    assert plain is not None
    assert stretched is not None
    assert plain.scale == 7**-0.5
    assert stretched.scale == pytest.approx(7**-0.5 * (0.05 * math.log(40) + 1) ** 2)


@pytest.mark.parametrize(
    ("changes", "rotates"),
    [
        ({}, (True, True, True)),
        ({"no_rope_layer_interval": 2}, (True, False, True)),
        ({"no_rope_layers": [0, 1, 0]}, (False, True, False)),
    ],
)
def test_layers_of_smollm3_that_do_not_rotate(changes, rotates):
    config = read("SmolLM3", num_key_value_heads=2, **changes)
    assert tuple(kind is RopeKind.MODEL for kind in config.rope_kinds) == rotates
    assert config.tied
    windows = read(
        "SmolLM3", num_key_value_heads=2, no_rope_layers=[0, 1, 0], use_sliding_window=True, sliding_window=7
    ).windows
    assert windows == (7, None, 7)
    named = ["full_attention", "sliding_attention", "full_attention"]
    assert read("SmolLM3", num_key_value_heads=2, layer_types=named, sliding_window=7).windows == (None, 7, None)


@pytest.mark.parametrize(
    ("architecture", "sizes"), [("Llama", {}), ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2})]
)
def test_other_activations(architecture, sizes):
    assert read(architecture, num_key_value_heads=2, hidden_act="relu", **sizes).activation is Activation.RELU


def test_granites_scales():
    config = read(
        "Granite", attention_multiplier=0.1, embedding_multiplier=12, residual_multiplier=0.2, logits_scaling=4
    )
    assert (config.scale, config.embedding_scale, config.residual_scale, config.logits_scale) == (0.1, 12, 0.2, 0.25)


def test_gemmas():
    gemma = read("Gemma", num_key_value_heads=2, head_dim=10)
    assert (gemma.tied, gemma.zero_centred, gemma.embedding_scale) == (True, True, math.sqrt(24))
    second = read("Gemma2", num_key_value_heads=2, head_dim=10, sliding_window=7, final_logit_softcapping="null")
    assert (second.windows, second.softcap, second.logits_softcap) == ((7, None, 7), 50.0, None)
    third = read("Gemma3", num_key_value_heads=2, head_dim=10, sliding_window_pattern=3, sliding_window=7)
    assert third.windows == (7, 7, None)
    assert third.rope_kinds == (RopeKind.LOCAL, RopeKind.LOCAL, RopeKind.MODEL)
    assert third.local_rope is not None
    assert (third.rope.base, third.local_rope.base, third.softcap) == (1e6, 1e4, None)
    scaled = read("Gemma3", num_key_value_heads=2, head_dim=10, rope_scaling={"rope_type": "linear", "factor": 8.0})
    assert isinstance(scaled.rope.scaling, LinearScaling)
    assert scaled.local_rope is not None
    assert isinstance(scaled.local_rope.scaling, NoScaling)


def test_the_description_has_the_ropes_that_a_model_uses():
    plain = read("Gemma3", num_key_value_heads=2, head_dim=10).facts()
    assert (plain["rope"]["base"], plain["local_rope"]["base"]) == (1e6, 1e4)
    assert read().facts()["local_rope"] is None
    sizes = {"n_embd": 24, "n_head": 6, "n_layer": 2, "n_positions": 32, "vocab_size": 50}
    learned = DecoderConfig.from_hf({"architectures": ["GPT2LMHeadModel"], "layer_norm_epsilon": 1e-5, **sizes})
    assert learned.facts()["rope"] is None


def test_shares_of_a_head_that_rotate():
    glm = read("Glm", num_key_value_heads=2, head_dim=8)
    assert (glm.rope.rotated, glm.rope.mode, glm.qkv_bias) == (4, RopeMode.INTERLEAVED, True)
    assert read("StableLm", num_key_value_heads=2, hidden_size=48).rope.rotated == 2


def test_gpt_neox_takes_the_first_names_of_its_fields():
    config = read("GPTNeoX", hidden_size=48, rotary_pct=0.5, rotary_emb_base=500, hidden_act="gelu")
    assert (config.rope.rotated, config.rope.base, config.activation) == (4, 500.0, Activation.GELU)
    assert (config.parallel, config.gated_mlp, config.qkv_bias, config.kv_heads) == (True, False, True, 6)
    assert read("GPTNeoX", hidden_size=48).rope.rotated == 2


GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 24,
    "n_head": 6,
    "n_layer": 2,
    "n_positions": 32,
    "vocab_size": 50,
}


def test_gpt2():
    config = DecoderConfig.from_hf(GPT2)
    assert (config.hidden, config.intermediate, config.head_size, config.learned_positions) == (24, 96, 4, 32)
    assert (config.tied, config.activation, config.rope.reach) == (True, Activation.GELU_TANH, 32)


def test_gpt_bigcode():
    bigcode = {**GPT2, "architectures": ["GPTBigCodeForCausalLM"]}
    assert DecoderConfig.from_hf(bigcode).kv_heads == 1
    assert DecoderConfig.from_hf({**bigcode, "multi_query": False}).kv_heads == 6
    with pytest.raises(ConfigError, match="'multi_query': expected true or false; found 'yes'"):
        DecoderConfig.from_hf({**bigcode, "multi_query": "yes"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_embd": 25}, r"'n_embd': expected an even multiple of n_head \(6\); found 25"),
        ({"scale_attn_by_inverse_layer_idx": True}, "'scale_attn_by_inverse_layer_idx': expected false, or no such"),
        ({"scale_attn_weights": False}, "'scale_attn_weights': expected true, or no such field; found False"),
        ({"activation_function": "mish"}, "'activation_function': expected one of silu, .*; found 'mish'"),
    ],
)
def test_what_gpt2_cannot_be(changes, message):
    with pytest.raises(ConfigError, match=message):
        DecoderConfig.from_hf({**GPT2, **changes})


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("Mistral", {}, "field 'num_key_value_heads' is missing"),
        ("Mixtral", {"num_key_value_heads": 2}, "field 'num_local_experts' is missing"),
        (
            "SmolLM3",
            {"num_key_value_heads": 2, "no_rope_layers": [1]},
            "'no_rope_layers': expected a list of 3 .* of 1",
        ),
        ("Qwen3Moe", {**QWEN3_MOE, "mlp_only_layers": "0"}, "'mlp_only_layers': expected a list of the numbers of la"),
        ("Qwen3Moe", {**QWEN3_MOE, "num_experts_per_tok": 9}, "expected 1 to 8 experts per token; found 9"),
        ("DeepseekV3", {**DEEPSEEK, "num_key_value_heads": 3}, r"expected num_attention_heads \(6\): all heads share"),
        ("DeepseekV3", {**DEEPSEEK, "scoring_func": "softmax"}, "'scoring_func': expected one of sigmoid; found 'sof"),
        ("Qwen3", {"num_key_value_heads": 2}, "field 'head_dim' is missing"),
        ("Qwen2", {"num_key_value_heads": 2, "layer_types": ["full_attention"]}, "'layer_types': expected a list of 3"),
        ("Qwen2", {"num_key_value_heads": 2, "layer_types": ["linear"] * 3}, "'layer_types': expected a list of 3"),
        (
            "Qwen2",
            {"num_key_value_heads": 2, "layer_types": ["sliding_attention"] * 3},
            "'layer_types': expected no sliding_attention, for use_sliding_window is false",
        ),
    ],
)
def test_families_ask_for_what_they_need(architecture, changes, message):
    with pytest.raises(ConfigError, match=message):
        read(architecture, **changes)


GPT_OSS = {
    "num_key_value_heads": 2,
    "head_dim": 4,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "num_experts_per_tok": 2,
    "num_local_experts": 5,
    "sliding_window": 6,
}


def test_gpt_oss():
    config = read("GptOss", **GPT_OSS)
    assert (config.sinks, config.qkv_bias, config.output_bias, config.windows) == (True, True, True, (None, 6, None))
    assert config.experts is not None
    assert config.experts.clamped == ClampedGate(1.702, 7.0)
    assert config.experts.routing == Routing(experts=5, chosen=2, biased=True)
    by_turns = read("GptOss", **{**GPT_OSS, "layer_types": "null"})
    assert by_turns.windows == (6, None, 6)
    assert read("GptOss", **GPT_OSS, swiglu_limit=2.5, swiglu_alpha=1.5).experts != config.experts
