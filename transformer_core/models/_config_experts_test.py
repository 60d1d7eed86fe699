"""Configurations of families with mixtures of experts."""

from typing import Any

import pytest

from lang_core import ConfigError, as_dtype
from transformer_core.family import DecoderConfig, ExpertsConfig, NormKind
from transformer_core.family._config import family_of
from transformer_core.layers._attention_config import QueryGrowth
from transformer_core.layers._rope_config import RopeKind, RopeMode
from transformer_core.layers._rope_scaling import YarnScaling
from transformer_core.layers._routing import Routing, Scoring
from transformer_core.models._config_testing import MINIMAL, read


def test_gpt_oss_without_rope_has_that_of_transformers():
    values = {"num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 3}
    config = read("GptOss", **values)
    scaling = config.rope.scaling
    assert isinstance(scaling, YarnScaling)
    assert (config.rope.base, scaling.factor, scaling.original_length) == (150000.0, 32.0, 4096)
    assert config.windows == (128, None, 128)
    assert read("GptOss", **values, rope_theta=500.0).rope.base == 500.0


GLM4_MOE: dict[str, Any] = {
    "num_key_value_heads": 2,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
}


def test_glm4_moe():
    config = read("Glm4Moe", **GLM4_MOE)
    assert (config.rope.rotated, config.rope.mode, config.qk_norm, config.qkv_bias) == (
        2,
        RopeMode.SPLIT_HALF,
        False,
        False,
    )
    routing = Routing(experts=8, chosen=3, scoring=Scoring.SIGMOID, corrected=True)
    assert config.experts == ExpertsConfig(routing=routing, inner=16, layers=(False, True, True), shared=16)
    assert (config.extra_layers, config.output_bias) == (1, False)
    assert read("Glm4Moe", **GLM4_MOE, num_nextn_predict_layers=0).extra_layers == 0


DEEPSEEK_V2: dict[str, Any] = {
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "n_group": 4,
    "topk_group": 2,
}


def test_deepseek_v2():
    config = read("DeepseekV2", **DEEPSEEK_V2, first_k_dense_replace=1)
    assert (config.rope.mode, config.rope.rotated, config.head_size) == (RopeMode.INTERLEAVED, 4, 10)
    routing = Routing(experts=8, chosen=3, normalized=False, group_best=1)
    assert config.experts == ExpertsConfig(routing=routing, inner=16, layers=(False, True, True), shared=32)
    grouped = read("DeepseekV2", **DEEPSEEK_V2, topk_method="group_limited_greedy", mlp_bias=True).experts
    assert grouped is not None
    assert (grouped.routing.groups, grouped.routing.chosen_groups, grouped.shared_biased) == (4, 2, True)
    with pytest.raises(ConfigError, match="'norm_topk_prob': expected false: transformers does not normalise"):
        read("DeepseekV2", **DEEPSEEK_V2, norm_topk_prob=True)
    with pytest.raises(ConfigError, match="'topk_method': expected one of greedy, group_limited_greedy; found"):
        read("DeepseekV2", **DEEPSEEK_V2, topk_method="noaux_tc")


QWEN2_MOE: dict[str, Any] = {
    "num_key_value_heads": 2,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 12,
    "num_hidden_layers": 5,
}


def test_qwen2_moe():
    config = read("Qwen2Moe", **QWEN2_MOE)
    assert (config.qkv_bias, config.output_bias, config.windows) == (True, False, (None,) * 5)
    routing = Routing(experts=8, chosen=3, normalized=False)
    experts = ExpertsConfig(routing=routing, inner=16, layers=(True,) * 5, shared=12, shared_gate=True)
    assert config.experts == experts
    slides = {**QWEN2_MOE, "use_sliding_window": True, "sliding_window": 9}
    assert read("Qwen2Moe", **slides, max_window_layers=4).windows == (9, None, 9, None, None)
    listed = ["full_attention", *["sliding_attention"] * 4]
    assert read("Qwen2Moe", **slides, layer_types=listed).windows == (None, 9, 9, 9, 9)
    with pytest.raises(
        ConfigError, match="'layer_types': expected no sliding_attention, for use_sliding_window is false"
    ):
        read("Qwen2Moe", **QWEN2_MOE, layer_types=listed)


MINIMAX_M2: dict[str, Any] = {
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
}


def test_minimax_m2():
    config = read("MiniMaxM2", **MINIMAX_M2, rotary_dim=8)
    assert (config.rope.rotated, config.rope.base, config.qk_norm_whole) == (8, 5e6, True)
    routing = Routing(experts=8, chosen=3, scoring=Scoring.SIGMOID, corrected=True)
    assert config.experts == ExpertsConfig(routing=routing, inner=40, layers=(True,) * 3)
    assert read("MiniMaxM2", **MINIMAX_M2).rope.rotated == 16
    with pytest.raises(ConfigError, match="'scoring_func': expected one of sigmoid; found 'softmax'"):
        read("MiniMaxM2", **MINIMAX_M2, scoring_func="softmax")


ERNIE: dict[str, Any] = {"num_key_value_heads": 2, "moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 16}


def test_ernie4_5_moe():
    config = read("Ernie4_5_Moe", **ERNIE)
    assert (config.rope.mode, config.rope.base, config.tied) == (RopeMode.INTERLEAVED, 500000.0, True)
    routing = Routing(experts=8, chosen=3, least_sum=1e-12, corrected=True)
    assert config.experts == ExpertsConfig(routing=routing, inner=16, layers=(False, True, True), shared=32)
    biased = read("Ernie4_5_Moe", **ERNIE, use_bias=True, tie_word_embeddings=False, moe_layer_end_index=1)
    assert (biased.qkv_bias, biased.output_bias, biased.mlp_bias, biased.head_bias) == (True,) * 4
    assert biased.experts is not None
    assert (biased.experts.layers, biased.experts.shared_biased) == ((False, True, False), True)
    assert read("Ernie4_5_Moe", **ERNIE, use_bias=True).tied


def test_kimi_k2_is_a_deepseek_v3_with_one_frequency_between_its_bands():
    scaling = {"type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
    config = read(
        "DeepseekV3",
        model_type="kimi_k2",
        q_lora_rank=10,
        kv_lora_rank=8,
        qk_nope_head_dim=6,
        qk_rope_head_dim=4,
        v_head_dim=5,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=3,
        moe_intermediate_size=16,
        n_group=1,
        topk_group=1,
        rope_scaling={**scaling, "original_max_position_embeddings": 16},
    )
    assert isinstance(config.rope.scaling, YarnScaling)
    assert config.experts is not None
    assert config.experts.routing.scale == 2.5


LLAMA4: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 8, "num_hidden_layers": 5}


def test_llama4():
    config = read("Llama4", **LLAMA4, no_rope_layers=[], intermediate_size_mlp=70)
    assert (config.windows, config.chunked) == ((8192, 8192, 8192, None, 8192), True)
    assert [kind is RopeKind.NONE for kind in config.rope_kinds] == [False, False, False, True, False]
    assert (config.rope.mode, config.rope.base, config.intermediate) == (RopeMode.INTERLEAVED, 500000.0, 70)
    assert config.query_growth == QueryGrowth(0.1, 8192, first=1)
    routing = Routing(experts=8, chosen=1, scoring=Scoring.SIGMOID, normalized=False)
    experts = ExpertsConfig(routing=routing, inner=40, layers=(True,) * 5, shared=40, scales_inputs=True)
    assert config.experts == experts
    by_turns = read("Llama4", **LLAMA4, interleave_moe_layer_step=2, no_rope_layer_interval=2)
    assert by_turns.experts is not None
    assert by_turns.experts.layers == (False, True, False, True, False)
    assert by_turns.windows == (8192, None, 8192, None, 8192)
    text = {**MINIMAL, **LLAMA4, "attention_chunk_size": 9, "architectures": None}
    values = {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": text}
    assert DecoderConfig.from_hf(values).windows == (9, 9, 9, None, 9)


def test_layers_of_llama4_have_a_growth_or_norms():
    config = read("Llama4", **LLAMA4)
    layers: list[Any] = [family_of(config).layer(config, index, as_dtype("f32")) for index in (2, 3)]
    facts = [(layer.self_attn.config.norm is None, layer.self_attn.config.scores.growth is None) for layer in layers]
    assert facts == [(False, True), (True, False)]


PHIMOE: dict[str, Any] = {"num_key_value_heads": 2, "num_local_experts": 8}


def test_phimoe():
    config = read("Phimoe", **PHIMOE, attention_bias=True, lm_head_bias=True)
    assert (config.norm, config.qkv_bias, config.output_bias, config.head_bias) == (NormKind.LAYER, True, True, True)
    routing = Routing(experts=8, chosen=2, scoring=Scoring.MIXER, nearness=0.02)
    assert config.experts == ExpertsConfig(routing=routing, inner=40, layers=(True,) * 3)
    factors = {"short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0], "short_mscale": 1.2, "long_mscale": 1.2}
    rope = {"type": "longrope", "original_max_position_embeddings": 16, **factors}
    long = read("Phimoe", **PHIMOE, rope_scaling=rope).rope
    assert (long.attention_factor, long.scaling.depends_on_length) == (1.2, False)
    with pytest.raises(ConfigError, match=r"'long_mscale': expected short_mscale \(1.2\): .* found 1.5"):
        read("Phimoe", **PHIMOE, rope_scaling={**rope, "long_mscale": 1.5})


def test_hyper_connections_are_refused_with_the_reason():
    message = r"'architectures': DeepseekV4ForCausalLM is not supported: hyper-connections and compressed attention"
    with pytest.raises(ConfigError, match=message):
        DecoderConfig.from_hf({**MINIMAL, "architectures": ["DeepseekV4ForCausalLM"]})


REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("Glm4Moe", GLM4_MOE, {"num_experts_per_tok": 9}, "routing: expected 1 to 8 experts per token; found 9"),
    ("Glm4Moe", GLM4_MOE, {"n_group": 3}, "routing: 8 experts do not make 3 equal groups"),
    ("Glm4Moe", GLM4_MOE, {"n_routed_experts": None}, "field 'n_routed_experts' is missing"),
    ("Qwen2Moe", QWEN2_MOE, {"num_experts_per_tok": 0}, "'num_experts_per_tok': expected an integer of at least 1"),
    ("Qwen2Moe", QWEN2_MOE, {"mlp_only_layers": ["0"]}, "'mlp_only_layers': expected a list of the numbers of layers"),
    ("MiniMaxM2", MINIMAX_M2, {"rotary_dim": 24}, "expected a number above 0, not above 1|rotated dims"),
    (
        "Llama4",
        LLAMA4,
        {"layer_types": ["sliding_attention"] * 5},
        "'layer_types': expected a list of 5 .* of chunked_",
    ),
    ("Llama4", LLAMA4, {"moe_layers": "all"}, "'moe_layers': expected a list of the numbers of layers"),
    ("Phimoe", PHIMOE, {"num_experts_per_tok": 3}, "'num_experts_per_tok': expected 2, which the router always"),
    (
        "Phimoe",
        PHIMOE,
        {"rope_scaling": {"type": "yarn"}},
        "'type': expected one of default, longrope, su; found 'yarn'",
    ),
    ("Ernie4_5_Moe", ERNIE, {"moe_k": 9}, "routing: expected 1 to 8 experts per token; found 9"),
]


@pytest.mark.parametrize(("family", "values", "changes", "message"), REFUSED)
def test_numbers_that_contradict_each_other_are_refused(family: str, values: Any, changes: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        read(family, **{**values, **changes})
