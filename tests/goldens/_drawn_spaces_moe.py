"""Spaces of families with mixtures of experts."""

import random
from typing import Any, Final

from tests.goldens._case_types import Config
from tests.goldens._drawn_space_types import ABSENT, Space, decoder_space, partial_rope, per_layer, up_to


def _groups(config: Config, rng: random.Random) -> int:
    """Draws the number of groups, of two experts or more."""
    experts = config["n_routed_experts"]
    return rng.choice([count for count in (1, 2, 3, 4) if experts % count == 0 and experts // count > 1])


def _reachable(config: Config, rng: random.Random) -> int:
    """Draws the number of experts of a token, which come from the chosen groups."""
    return rng.randint(1, config["n_routed_experts"] // config["n_group"] * config["topk_group"])


def _window_types(config: Config, rng: random.Random) -> Any:
    """Draws kinds of layers, with windows where the model has some."""
    kinds = ["full_attention", "sliding_attention"] if config.get("use_sliding_window") else ["full_attention"]
    return per_layer(*kinds)(config, rng)


def _rotating(config: Config, rng: random.Random) -> Any:
    """Draws which layers rotate; in some cases none are listed."""
    return rng.choice([ABSENT, [], [rng.randint(0, 1) for _ in range(config["num_hidden_layers"])]])


def _phimoe_rope(config: Config, rng: random.Random) -> Any:
    """Draws a RoPE that is plain, or long with a factor per frequency."""
    theta, scale = rng.choice([50.0, 10000.0]), rng.choice([1.0, 1.24])
    half = (config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]) // 2
    factors = {f"{name}_factor": [rng.uniform(1, 4) for _ in range(half)] for name in ("short", "long")}
    long = {"rope_type": "longrope", "rope_theta": theta, "original_max_position_embeddings": rng.choice([8, 16])}
    scaled = {**long, **factors, "short_mscale": scale, "long_mscale": rng.choice([scale, scale, 1.5])}
    return rng.choice([ABSENT, {"rope_type": "default", "rope_theta": theta}, scaled, scaled])


SPACES: Final[dict[str, Space]] = {
    "Glm4MoeForCausalLM": decoder_space(
        "glm4_moe",
        "Glm4MoeForCausalLM",
        head_dim=[8, 12, ABSENT],
        rope_parameters=partial_rope(0.5, 1.0),
        attention_bias=[True, False, ABSENT],
        use_qk_norm=[True, False, ABSENT],
        first_k_dense_replace=[0, 1, 2, ABSENT],
        moe_intermediate_size=[18, 26],
        n_routed_experts=[4, 6, 8],
        n_shared_experts=[1, 2, ABSENT],
        n_group=_groups,
        topk_group=up_to("n_group"),
        num_experts_per_tok=_reachable,
        norm_topk_prob=[True, False, ABSENT],
        routed_scaling_factor=[1.7, ABSENT],
        num_nextn_predict_layers=[0, 1, ABSENT],
    ),
    "DeepseekV2ForCausalLM": decoder_space(
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        num_key_value_heads=lambda config, rng: config["num_attention_heads"],
        head_dim=[ABSENT],
        attention_bias=[True, False, ABSENT],
        mlp_bias=[True, False, ABSENT],
        q_lora_rank=[9, None],
        kv_lora_rank=[8, 12],
        qk_nope_head_dim=[4, 6],
        qk_rope_head_dim=[4, 8],
        v_head_dim=[5, 8],
        first_k_dense_replace=[0, 1, 2, ABSENT],
        moe_intermediate_size=[18, 26],
        n_routed_experts=[4, 6, 8],
        n_shared_experts=[1, 2, ABSENT],
        n_group=_groups,
        topk_group=up_to("n_group"),
        topk_method=["greedy", "group_limited_greedy", ABSENT],
        num_experts_per_tok=_reachable,
        norm_topk_prob=[False, ABSENT],
        routed_scaling_factor=[1.7, ABSENT],
    ),
    "Qwen2MoeForCausalLM": decoder_space(
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        head_dim=[8, ABSENT],
        qkv_bias=[True, False, ABSENT],
        decoder_sparse_step=[1, 2, ABSENT],
        mlp_only_layers=[[], [0], [1], ABSENT],
        moe_intermediate_size=[18, 26],
        shared_expert_intermediate_size=[22, 30],
        num_experts=[3, 5, 8],
        num_experts_per_tok=up_to("num_experts"),
        norm_topk_prob=[True, False, ABSENT],
        use_sliding_window=[True, False, ABSENT],
        sliding_window=[3, 5, ABSENT],
        max_window_layers=[1, 3, ABSENT],
        layer_types=_window_types,
    ),
    "MiniMaxM2ForCausalLM": decoder_space(
        "minimax_m2",
        "MiniMaxM2ForCausalLM",
        head_dim=[8, 12],
        rope_parameters=partial_rope(0.5, 1.0),
        num_local_experts=[3, 5, 8],
        num_experts_per_tok=up_to("num_local_experts"),
    ),
    "Ernie4_5_MoeForCausalLM": decoder_space(
        "ernie4_5_moe",
        "Ernie4_5_MoeForCausalLM",
        head_dim=[8, 12, ABSENT],
        use_bias=[True, False, ABSENT],
        moe_intermediate_size=[18, 26],
        moe_num_experts=[3, 5, 8],
        moe_k=up_to("moe_num_experts"),
        moe_num_shared_experts=[0, 1, 2, ABSENT],
        moe_layer_start_index=[0, 1, 2, ABSENT],
        moe_layer_end_index=[-1, 1, 2, ABSENT],
        moe_layer_interval=[1, 2, ABSENT],
        moe_norm_min=[0.3, 0.9, ABSENT],
    ),
    "Llama4ForCausalLM": decoder_space(
        "llama4_text",
        "Llama4ForCausalLM",
        intermediate_size_mlp=[30, 46],
        attention_bias=[True, False, ABSENT],
        use_qk_norm=[True, False, ABSENT],
        num_local_experts=[3, 5, 8],
        num_experts_per_tok=up_to("num_local_experts"),
        moe_layers=[[], [0], [0, 2], None, ABSENT],
        interleave_moe_layer_step=[1, 2, ABSENT],
        no_rope_layers=_rotating,
        no_rope_layer_interval=[2, 3, ABSENT],
        attention_chunk_size=[3, 5, 64],
        layer_types=per_layer("full_attention", "chunked_attention"),
        attn_temperature_tuning=[True, False, ABSENT],
        floor_scale=[1, 3, 7, ABSENT],
        attn_scale=[0.4, ABSENT],
    ),
    "PhimoeForCausalLM": decoder_space(
        "phimoe",
        "PhimoeForCausalLM",
        head_dim=[8, 12, ABSENT],
        rope_parameters=_phimoe_rope,
        attention_bias=[True, False, ABSENT],
        lm_head_bias=[True, False, ABSENT],
        num_local_experts=[3, 5, 8],
        num_experts_per_tok=[2, ABSENT],
        router_jitter_noise=[0.01, 0.3, 0.0, ABSENT],
        sliding_window=[3, None, ABSENT],
    ),
}
