"""Spaces of families of several kinds: dense, mixtures of experts, windows, latent attention, sinks."""

import random
from typing import Any, Final

from tests.goldens._case_types import Config
from tests.goldens._drawn_space_types import ABSENT, Space, decoder_space, per_layer, up_to


def _groups(config: Config, rng: random.Random) -> int:
    """Draws the number of groups, of two experts or more."""
    experts = config["n_routed_experts"]
    return rng.choice([count for count in (1, 2, 3, 4) if experts % count == 0 and experts // count > 1])


def _reachable(config: Config, rng: random.Random) -> int:
    """Draws the number of experts of a token, which come from the chosen groups."""
    return rng.randint(1, config["n_routed_experts"] // config["n_group"] * config["topk_group"])


def _two_ropes(config: Config, rng: random.Random) -> Any:
    if rng.random() < 0.25:
        return ABSENT
    scaled = {"rope_type": "linear", "rope_theta": rng.choice([500.0, 1e6]), "factor": rng.choice([2.0, 8.0])}
    return {
        "full_attention": rng.choice([scaled, {"rope_type": "default", "rope_theta": 300.0}]),
        "sliding_attention": {"rope_type": "default", "rope_theta": rng.choice([10.0, 10000.0])},
    }


SPACES: Final[dict[str, Space]] = {
    "LlamaForCausalLM": decoder_space(
        "llama",
        "LlamaForCausalLM",
        attention_bias=[True, False, ABSENT],
        mlp_bias=[True, False, ABSENT],
    ),
    "Qwen3MoeForCausalLM": decoder_space(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        attention_bias=[True, False, ABSENT],
        decoder_sparse_step=[1, 2, ABSENT],
        mlp_only_layers=[[], [0], [1], ABSENT],
        moe_intermediate_size=[18, 26],
        num_experts=[3, 5, 8],
        num_experts_per_tok=up_to("num_experts"),
        norm_topk_prob=[True, False, ABSENT],
        use_sliding_window=[True, False, ABSENT],
        sliding_window=[3, 5, None, ABSENT],
    ),
    "Gemma3ForCausalLM": decoder_space(
        "gemma3_text",
        "Gemma3ForCausalLM",
        hidden_act=[ABSENT],
        hidden_activation=["gelu_pytorch_tanh", "silu", "gelu", ABSENT],
        rope_parameters=_two_ropes,
        attention_bias=[True, False, ABSENT],
        layer_types=per_layer("full_attention", "sliding_attention"),
        sliding_window=[3, 5, ABSENT],
        query_pre_attn_scalar=[8, 36, ABSENT],
        final_logit_softcapping=[4.0, None, ABSENT],
        attn_logit_softcapping=[2.0, None, ABSENT],
    ),
    "DeepseekV3ForCausalLM": decoder_space(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        num_key_value_heads=lambda config, rng: config["num_attention_heads"],
        head_dim=[ABSENT],
        attention_bias=[True, False, ABSENT],
        q_lora_rank=[9, None],
        kv_lora_rank=[7, 12],
        qk_nope_head_dim=[4, 6],
        qk_rope_head_dim=[4, 8],
        v_head_dim=[5, 8],
        rope_interleave=[True, False, ABSENT],
        first_k_dense_replace=[0, 1, 2],
        moe_intermediate_size=[18, 26],
        n_routed_experts=[4, 6, 8],
        n_shared_experts=[1, 2],
        n_group=_groups,
        topk_group=up_to("n_group"),
        num_experts_per_tok=_reachable,
        norm_topk_prob=[True, False, ABSENT],
        routed_scaling_factor=[1.0, 1.7, ABSENT],
    ),
    "GptOssForCausalLM": decoder_space(
        "gpt_oss",
        "GptOssForCausalLM",
        attention_bias=[True, False, ABSENT],
        layer_types=per_layer("full_attention", "sliding_attention"),
        sliding_window=[3, 5, ABSENT],
        num_local_experts=[3, 5, 8],
        num_experts_per_tok=up_to("num_local_experts"),
        hidden_act=["silu", ABSENT],
    ),
}
