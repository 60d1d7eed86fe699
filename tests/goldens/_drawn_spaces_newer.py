"""Spaces of newer families of decoders, and of CTRL and GPT-NeoX Japanese."""

from typing import Any, Final

from tests.goldens._drawn_space_types import (
    ABSENT,
    Space,
    decoder_space,
    divisor_of,
    partial_rope,
    per_layer,
    up_to,
)

_FLAGS: Final = [True, False, ABSENT]
_SHARE: Final = {"rope_type": "default", "partial_rotary_factor": 0.34}
_KINDS: Final = ("full_attention", "sliding_attention")
_FEEDS: Final = ("dense", "sparse")
_WHOLE_HEADS: Final[dict[str, Any]] = {
    "head_dim": [ABSENT],
    "hidden_size": lambda config, rng: config["num_attention_heads"] * rng.choice([6, 8, 10]),
}
_LATENT: Final[dict[str, Any]] = {
    "num_key_value_heads": lambda config, rng: config["num_attention_heads"],
    "head_dim": [ABSENT],
    "q_lora_rank": [8, 12],
    "kv_lora_rank": [8, 12],
    "qk_nope_head_dim": [4, 6],
    "qk_rope_head_dim": [4, 8],
    "v_head_dim": [6, 8],
}


def _base(config: Any, rng: Any) -> Any:
    """Draws the configuration of DBRX's attention; its base of RoPE is that of the model."""
    base = config["rope_parameters"]["rope_theta"]
    heads = divisor_of("n_heads")(config, rng)
    return {"kv_n_heads": heads, "rope_theta": base, "clip_qkv": rng.choice([None, 0.5, 1.0])}


def _experts(config: Any, rng: Any) -> Any:
    count = rng.choice([3, 5])
    drawn = {"ffn_hidden_size": rng.choice([14, 22]), "moe_num_experts": count, "moe_top_k": rng.randint(1, count)}
    others = rng.choice([{}, {"moe_normalize_expert_weights": None}, {"ffn_act_fn": {"name": "gelu"}}])
    return {**drawn, **others, **rng.choice([{}, {"moe_normalize_expert_weights": 2.0}, {}])}


def _ropes_by_type(config: Any, rng: Any) -> Any:
    """Draws the RoPE of each type of layers; sometimes none."""
    drawn = {
        kind: {
            "rope_type": "default",
            "rope_theta": rng.choice([90.0, 300.0]),
            **rng.choice([{}, {"partial_rotary_factor": 0.5}]),
        }
        for kind in _KINDS
    }
    return rng.choice([ABSENT, drawn])


SPACES: Final[dict[str, Space]] = {
    "Kolibri1ForCausalLM": decoder_space(
        "kolibri1",
        "Kolibri1ForCausalLM",
        intermediate_size=[ABSENT],
        num_experts=[4, 6],
        num_experts_per_tok=up_to("num_experts"),
        moe_intermediate_size=[10, 14],
        shared_expert_intermediate_size=[10, 18],
        norm_topk_prob=_FLAGS,
        layer_types=per_layer(*_KINDS),
        sliding_window=[3, 5, ABSENT],
    ),
    "FlintForCausalLM": decoder_space(
        "flint",
        "FlintForCausalLM",
        attention_bias=_FLAGS,
        num_experts=[4, 6],
        num_experts_per_tok=up_to("num_experts"),
        moe_intermediate_size=[10, 14],
        shared_expert_intermediate_size=[10, 18],
        norm_topk_prob=_FLAGS,
        layer_types=per_layer(*_KINDS),
        sliding_window=[3, 5, ABSENT],
        decoder_sparse_step=[1, 2, ABSENT],
        mlp_only_layers=[[], [0], [1], ABSENT],
    ),
    "Cohere2MoeForCausalLM": decoder_space(
        "cohere2_moe",
        "Cohere2MoeForCausalLM",
        layer_norm_eps=[1e-5, 1e-2, ABSENT],
        rms_norm_eps=[1e-5, 1e-2, None, ABSENT],
        attention_bias=_FLAGS,
        logit_scale=[0.3, 1.0, ABSENT],
        num_experts=[4, 6],
        num_experts_per_tok=up_to("num_experts"),
        num_shared_experts=[0, 1, 2, ABSENT],
        shared_expert_combination_strategy=["average", "sum", ABSENT],
        expert_selection_fn=["softmax", "sigmoid", ABSENT],
        norm_topk_prob=_FLAGS,
        prefix_dense_intermediate_size=[20, 26],
        first_k_dense_replace=[0, 1, ABSENT],
        prefix_dense_sliding_window_pattern=[1, 2, ABSENT],
        sliding_window_pattern=[2, 3, ABSENT],
        sliding_window=[3, 5],
        layer_types=per_layer(*_KINDS),
        mlp_layer_types=per_layer(*_FEEDS),
        rope_parameters=[ABSENT, {"rope_type": "default", "rope_theta": 300.0}],
    ),
    "AXK1ForCausalLM": decoder_space(
        "axk1",
        "AXK1ForCausalLM",
        **_LATENT,
        attention_bias=_FLAGS,
        moe_intermediate_size=[10, 14],
        n_routed_experts=[4, 8],
        n_group=[1, 2],
        topk_group=up_to("n_group"),
        num_experts_per_tok=[1, 2],
        n_shared_experts=[1, 2],
        norm_topk_prob=_FLAGS,
        routed_scaling_factor=[1.0, 2.5, ABSENT],
        mlp_layer_types=per_layer(*_FEEDS),
        first_k_dense_replace=[0, 1, ABSENT],
        rope_interleave=_FLAGS,
    ),
    **{
        architecture: decoder_space(
            model_type,
            architecture,
            **_LATENT,
            attention_bias=_FLAGS,
            moe_intermediate_size=[10, 14],
            n_routed_experts=[4, 8],
            n_group=[1, 2],
            topk_group=up_to("n_group"),
            num_experts_per_tok=[1, 2],
            n_shared_experts=[1, 2],
            norm_topk_prob=_FLAGS,
            routed_scaling_factor=[1.0, 2.5, ABSENT],
            mlp_layer_types=per_layer(*_FEEDS),
            first_k_dense_replace=[0, 1, ABSENT],
            index_topk=[3, 5, 40],
            index_head_dim=[8, 10],
            index_n_heads=[8, 9],  # with fewer, scores of several keys are often 0, and equal
        )
        for architecture, model_type in {
            "DeepseekV32ForCausalLM": "deepseek_v32",
            "GlmMoeDsaForCausalLM": "glm_moe_dsa",
        }.items()
    },
    "MiniMaxForCausalLM": decoder_space(
        "minimax",
        "MiniMaxForCausalLM",
        num_local_experts=[4, 5],
        num_experts_per_tok=[1, 2],
        hidden_act=["silu", "gelu", "relu"],
        layer_types=per_layer("full_attention", "linear_attention"),
        block_size=[2, 3, 256],
        linear_attn_alpha_factor=[1, 1.5, ABSENT],
        linear_attn_beta_factor=[1, 0.5, ABSENT],
        full_attn_alpha_factor=[1, 1.5, ABSENT],
        full_attn_beta_factor=[1, 0.5, ABSENT],
        mlp_alpha_factor=[1, 1.5, ABSENT],
        mlp_beta_factor=[1, 0.5, ABSENT],
        sliding_window=[None, ABSENT],
    ),
    "CTRLLMHeadModel": {
        "architectures": [["CTRLLMHeadModel"]],
        "model_type": ["ctrl"],
        "vocab_size": [61, 87, 93],
        "n_layer": [1, 2, 3],
        "n_head": [1, 2, 3, 4],
        "n_embd": lambda config, rng: config["n_head"] * rng.choice([6, 8, 10]),
        "n_positions": [32, 64],
        "dff": [28, 44, 52],
        "layer_norm_epsilon": [1e-6, ABSENT, 1e-2],
        "tie_word_embeddings": _FLAGS,
        "bos_token_id": [1],
        "eos_token_id": [2],
    },
    "DbrxForCausalLM": {
        "architectures": [["DbrxForCausalLM"]],
        "model_type": ["dbrx"],
        "vocab_size": [61, 87, 93],
        "n_layers": [1, 2, 3],
        "n_heads": [1, 2, 3, 4],
        "d_model": lambda config, rng: config["n_heads"] * rng.choice([6, 8, 10]),
        "max_seq_len": [32, 64],
        "rope_parameters": [{"rope_type": "default", "rope_theta": 300.0}],
        "attn_config": _base,
        "ffn_config": _experts,
        "bos_token_id": [1],
        "eos_token_id": [2],
    },
    "AriaTextForCausalLM": decoder_space(
        "aria_text",
        "AriaTextForCausalLM",
        **_WHOLE_HEADS,
        attention_bias=_FLAGS,
        moe_num_experts=[3, 6],
        moe_topk=up_to("moe_num_experts"),
        moe_num_shared_experts=[1, 2],
        hidden_act=["silu", ABSENT],
    ),
    "ModernBertDecoderForCausalLM": decoder_space(
        "modernbert-decoder",
        "ModernBertDecoderForCausalLM",
        **_WHOLE_HEADS,
        pad_token_id=[3],
        num_key_value_heads=[ABSENT],
        rms_norm_eps=[ABSENT],
        hidden_act=[ABSENT],
        norm_eps=[1e-5, 1e-2, ABSENT],
        hidden_activation=["gelu", "silu", ABSENT],
        classifier_activation=["gelu", "relu", ABSENT],
        norm_bias=_FLAGS,
        attention_bias=_FLAGS,
        mlp_bias=_FLAGS,
        decoder_bias=_FLAGS,
        classifier_bias=[False, False, ABSENT, True],
        local_attention=[4, 6, 7],
        layer_types=per_layer(*_KINDS),
        global_attn_every_n_layers=[2, ABSENT],
        rope_parameters=[
            ABSENT,
            {kind: {"rope_type": "default", "rope_theta": 90.0 + len(kind)} for kind in _KINDS},
            {"sliding_attention": {"rope_type": "default", "rope_theta": 50.0}},
        ],
        local_rope_theta=[70.0, ABSENT],
    ),
    "GPTNeoXJapaneseForCausalLM": decoder_space(
        "gpt_neox_japanese",
        "GPTNeoXJapaneseForCausalLM",
        num_key_value_heads=[ABSENT],
        head_dim=[ABSENT],
        hidden_size=lambda config, rng: config["num_attention_heads"] * rng.choice([8, 16]),
        intermediate_size=[ABSENT],
        intermediate_multiple_size=[2, 3, ABSENT],
        layer_norm_eps=[1e-5, 1e-2, ABSENT],
        rope_parameters=partial_rope(0.5, 0.25, 1.0),
        rotary_pct=[0.5, 1.0, ABSENT],
        rotary_emb_base=[90.0, ABSENT],
    ),
    "LagunaForCausalLM": decoder_space(
        "laguna",
        "LagunaForCausalLM",
        attention_bias=_FLAGS,
        gating=[True, "per-head", "per-element", ABSENT],
        num_attention_heads_per_layer=lambda config, rng: rng.choice(
            [
                ABSENT,
                [config["num_key_value_heads"] * rng.randint(1, 3) for _ in range(config["num_hidden_layers"])],
            ]
        ),
        num_experts=[4, 6],
        num_experts_per_tok=up_to("num_experts"),
        moe_intermediate_size=[10, 14],
        shared_expert_intermediate_size=[10, 18],
        moe_routed_scaling_factor=[1.5, ABSENT],
        moe_router_logit_softcapping=[0.0, 0.7, ABSENT],
        layer_types=per_layer(*_KINDS),
        mlp_layer_types=per_layer(*_FEEDS),
        sliding_window=[3, 5],
        head_dim=[8, 16],
        rope_parameters=_ropes_by_type,
    ),
    "MiMoV2FlashForCausalLM": decoder_space(
        "mimo_v2_flash",
        "MiMoV2FlashForCausalLM",
        num_attention_heads=[2, 4, 8],
        num_key_value_heads=lambda config, rng: rng.choice(
            [size for size in (1, 2, 4) if config["num_attention_heads"] % (2 * size) == 0]
        ),
        head_dim=[12, 18],
        v_head_dim=[6, 10],
        attention_bias=_FLAGS,
        attention_value_scale=[0.7, None, ABSENT],
        n_routed_experts=[4, 6],
        num_experts_per_tok=up_to("n_routed_experts"),
        moe_intermediate_size=[10, 14],
        n_group=[1, ABSENT],
        topk_group=[1, ABSENT],
        norm_topk_prob=_FLAGS,
        routed_scaling_factor=[1.5, None, ABSENT],
        layer_types=per_layer(*_KINDS),
        mlp_layer_types=per_layer(*_FEEDS),
        sliding_window=[3, 5],
        sliding_window_size=[2, ABSENT, ABSENT],
        rope_parameters=[
            ABSENT,
            {
                kind: {"rope_type": "default", "rope_theta": 90.0 + len(kind), "partial_rotary_factor": 0.34}
                for kind in _KINDS
            },
        ],
    ),
    "Lfm3ForCausalLM": decoder_space(
        "lfm3",
        "Lfm3ForCausalLM",
        rms_norm_eps=[ABSENT],
        norm_eps=[1e-5, 1e-2, ABSENT],
        hidden_act=[ABSENT],
        head_dim=[4, 8],
        conv_L_cache=[3, 5, ABSENT],
        conv_bias=_FLAGS,
        attention_bias=_FLAGS,
        use_sandwich_norm=_FLAGS,
        use_attention_gate=_FLAGS,
        layer_types=per_layer(*_KINDS, "conv"),
        sliding_window=[3, 5],
        rope_parameters=_ropes_by_type,
    ),
    "DiffLlamaForCausalLM": decoder_space(
        "diffllama",
        "DiffLlamaForCausalLM",
        num_attention_heads=[2, 4, 8],
        num_key_value_heads=lambda config, rng: rng.choice(
            [size for size in (2, 4, 8) if config["num_attention_heads"] % size == 0]
        ),
        head_dim=[4, 6, 8, 10, ABSENT],
        hidden_size=lambda config, rng: config["num_attention_heads"] * rng.choice([4, 6]),
        attention_bias=_FLAGS,
    ),
}
