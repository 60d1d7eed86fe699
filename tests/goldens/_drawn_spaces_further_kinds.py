"""Spaces of further families of Llama's kind: InternLM3, HyperCLOVA X, nanochat, K-EXAONE, AFMoE, MiniCPM3, BitNet."""

import random
from typing import Any, Final

from tests.goldens._case_types import Config
from tests.goldens._drawn_space_types import ABSENT, Space, decoder_space, per_layer, up_to

_FLAGS: Final = [True, False, ABSENT]
_WHOLE_HEADS: Final[dict[str, Any]] = {"head_dim": [ABSENT]}
_KINDS: Final = ("full_attention", "sliding_attention")
_LATENT: Final[dict[str, Any]] = {
    "head_dim": [ABSENT],
    "num_key_value_heads": lambda config, rng: config["num_attention_heads"],
    "kv_lora_rank": [8, 12],
    "q_lora_rank": [10, 14, None],
    "qk_nope_head_dim": [4, 6],
    "qk_rope_head_dim": [4, 6],
    "v_head_dim": [6, 8],
}


def _bases(config: Config, rng: random.Random) -> Any:
    """Draws the base of each layer's RoPE, with 0 for none; sometimes none are listed."""
    return rng.choice([ABSENT, [rng.choice([0, 50.0, 300.0]) for _ in range(config["num_hidden_layers"])]])


_SWA: Final[dict[str, Any]] = {
    "attention_bias": _FLAGS,
    "attention_multiplier": [0.3, ABSENT],
    "embedding_multiplier": [3.0, ABSENT],
    "residual_multiplier": [0.4, ABSENT],
    "logits_scaling": [2.0, ABSENT],
    "sliding_window": [3, 5],
    "layer_types": per_layer(*_KINDS),
    "layer_rope_theta": _bases,
}

SPACES: Final[dict[str, Space]] = {
    "InternLM3ForCausalLM": decoder_space(
        "internlm3",
        "InternLM3ForCausalLM",
        attention_bias=_FLAGS,
        mlp_bias=lambda c, rng: c.get("attention_bias", False),
    ),
    "IQuestCoderForCausalLM": decoder_space(
        "iquestcoder", "IQuestCoderForCausalLM", attention_bias=_FLAGS, mlp_bias=_FLAGS
    ),
    "HyperCLOVAXForCausalLM": decoder_space(
        "hyperclovax",
        "HyperCLOVAXForCausalLM",
        attention_bias=_FLAGS,
        mlp_bias=_FLAGS,
        attention_multiplier=[0.2, None, ABSENT],
        embedding_multiplier=[3.0, ABSENT],
        residual_multiplier=[0.4, ABSENT],
        logits_scaling=[2.0, ABSENT],
        use_post_norm=_FLAGS,
    ),
    "NanoChatForCausalLM": decoder_space(
        "nanochat",
        "NanoChatForCausalLM",
        **_WHOLE_HEADS,
        attention_bias=_FLAGS,
        final_logit_softcapping=[4.0, 15.0, None, ABSENT],
        hidden_act=["relu2", "gelu", ABSENT],
    ),
    "FlexOlmoForCausalLM": decoder_space(
        "flex_olmo",
        "FlexOlmoForCausalLM",
        **_WHOLE_HEADS,
        attention_bias=_FLAGS,
        num_experts=[3, 6],
        num_experts_per_tok=up_to("num_experts"),
        norm_topk_prob=_FLAGS,
    ),
    "ExaoneMoeForCausalLM": decoder_space(
        "exaone_moe",
        "ExaoneMoeForCausalLM",
        sliding_window=[3, 5],
        sliding_window_pattern=[2, 3, ABSENT],
        layer_types=per_layer(*_KINDS),
        first_k_dense_replace=[0, 1, 2, ABSENT],
        mlp_layer_types=per_layer("dense", "sparse"),
        moe_intermediate_size=[10, 14],
        num_experts=[4, 6],
        n_group=[1, 2],
        topk_group=lambda config, rng: rng.randint(1, config["n_group"]),
        num_experts_per_tok=[1, 2],
        num_shared_experts=[1, 2],
        norm_topk_prob=_FLAGS,
        routed_scaling_factor=[1.7, ABSENT],
    ),
    "AfmoeForCausalLM": decoder_space(
        "afmoe",
        "AfmoeForCausalLM",
        hidden_act=["silu", "gelu"],
        sliding_window=[3, 5],
        layer_types=per_layer(*_KINDS),
        global_attn_every_n_layers=[2, 3, ABSENT],
        num_dense_layers=[0, 1, 2, ABSENT],
        moe_intermediate_size=[10, 14],
        num_experts=[4, 6],
        num_experts_per_tok=[1, 2, 4],
        num_shared_experts=[1, 2],
        route_scale=[1.7, ABSENT],
        mup_enabled=_FLAGS,
        attention_bias=[False, ABSENT, False, True],
    ),
    "MiniCPM3ForCausalLM": decoder_space(
        "minicpm3",
        "MiniCPM3ForCausalLM",
        **_LATENT,
        scale_emb=[2, 12, ABSENT],
        scale_depth=[1.4, 2.0, None, ABSENT],
        dim_model_base=[16, None, ABSENT],
        attention_bias=_FLAGS,
        mlp_bias=_FLAGS,
    ),
    "YoutuForCausalLM": decoder_space(
        "youtu", "YoutuForCausalLM", **_LATENT, rope_interleave=_FLAGS, attention_bias=_FLAGS
    ),
    "BitNetForCausalLM": decoder_space(
        "bitnet", "BitNetForCausalLM", **_WHOLE_HEADS, attention_bias=_FLAGS, hidden_act=["relu2", "silu", ABSENT]
    ),
    "GraniteSWAForCausalLM": decoder_space(
        "granite_swa", "GraniteSWAForCausalLM", **_SWA, **_WHOLE_HEADS, mlp_bias=_FLAGS
    ),
    "GraniteMoeSWAForCausalLM": decoder_space(
        "granitemoe_swa",
        "GraniteMoeSWAForCausalLM",
        **_SWA,
        **_WHOLE_HEADS,
        num_local_experts=[3, 6],
        num_experts_per_tok=up_to("num_local_experts"),
        shared_intermediate_size=[0, 14, ABSENT],
    ),
    "MellumForCausalLM": decoder_space(
        "mellum",
        "MellumForCausalLM",
        layer_types=per_layer(*_KINDS),
        mlp_layer_types=per_layer("dense", "sparse"),
        sliding_window=[3, 5],
        attention_bias=_FLAGS,
        moe_intermediate_size=[10, 14],
        num_experts=[3, 6],
        num_experts_per_tok=up_to("num_experts"),
        norm_topk_prob=_FLAGS,
        rope_parameters=lambda config, rng: rng.choice(
            [ABSENT, {kind: {"rope_type": "default", "rope_theta": rng.choice([50.0, 1000.0])} for kind in _KINDS}]
        ),
    ),
    "HYV3ForCausalLM": decoder_space(
        "hy_v3",
        "HYV3ForCausalLM",
        attention_bias=_FLAGS,
        mlp_layer_types=per_layer("dense", "sparse"),
        moe_intermediate_size=[10, 14],
        num_experts=[3, 6],
        num_experts_per_tok=up_to("num_experts"),
        num_shared_experts=[1, 2],
        router_scaling_factor=[1.5, ABSENT],
    ),
}
