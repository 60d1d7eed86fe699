"""The cases with mixtures of experts: Mixtral, Qwen3-MoE, DeepSeek-V3."""

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._config_forms import DEFAULT_ROPE
from tests.goldens._moe_forms import (
    deepseek_v3_4_33,
    deepseek_v3_5,
    gpt_oss5,
    mixtral5,
    mixtral_4_36,
    qwen3_moe5,
    qwen3_moe_4_51,
)

_YARN = {
    "rope_type": "yarn",
    "rope_theta": 200.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
    "mscale": 1.4,
    "mscale_all_dim": 0.7,
}

MIXTRAL_CASES = (
    GoldenCase(
        name="mixtral",
        twist="mixture of 5 experts, 2 chosen; grouped queries; hidden states",
        config=mixtral5(K=2, E=5, C=2, sizes=dict(D=40, F=52, V=93, L=3, N=4)),
        form="5.x",
        seed=60,
        prompt=prompt(11, vocab=93),
        hidden=True,
        must_matter=({"num_experts_per_tok": 1}, {"num_experts_per_tok": 3}),
    ),
    GoldenCase(
        name="mixtral_window_tied_4x",
        twist="window 6, tied, batch of 2, 1 of 3 experts; 4.x form, bf16 file",
        config=mixtral_4_36(
            K=1, E=3, C=1, sizes=dict(D=36, F=44, V=87, L=2, N=3), sliding_window=6, tie_word_embeddings=True
        ),
        form="4.x",
        seed=61,
        prompt=prompt(9, 9, vocab=87),
        stored="bf16",
        must_matter=({"sliding_window": None}, {"num_experts_per_tok": 2}),
    ),
)

QWEN3_MOE_CASES = (
    GoldenCase(
        name="qwen3_moe",
        twist="9 experts, 4 chosen, normalised; q and k normed; head_dim not D / N; hidden states",
        config=qwen3_moe5(K=2, H=10, E=9, C=4, inner=14, sizes=dict(D=48, F=68, V=91, L=3, N=6)),
        form="5.x",
        seed=62,
        prompt=prompt(10, vocab=91),
        hidden=True,
        must_matter=({"norm_topk_prob": False}, {"num_experts_per_tok": 3}),
    ),
    GoldenCase(
        name="qwen3_moe_mixed_4x",
        twist="dense and sparse layers by turns and by list; weights not normalised; biases; tied; 4.x form",
        config=qwen3_moe_4_51(
            K=1,
            H=8,
            E=6,
            C=2,
            inner=20,
            sizes=dict(D=32, F=58, V=85, L=4, N=4),
            attention_bias=True,
            decoder_sparse_step=2,
            mlp_only_layers=[3],
            norm_topk_prob=False,
            rope_theta=10000.0,
            tie_word_embeddings=True,
        ),
        form="4.x",
        seed=200,
        prompt=prompt(8, vocab=85),
        must_matter=({"norm_topk_prob": True}, {"attention_bias": False}),
    ),
)

GPT_OSS_CASES = (
    GoldenCase(
        name="gpt_oss",
        twist="sinks, windows by turns, biases everywhere, experts input-major with a clamped gate, yarn not truncated",
        config=gpt_oss5(K=2, H=8, E=6, C=2, sizes=dict(D=40, F=36, V=89, L=3, N=6), swiglu_limit=1.0),
        form="5.x",
        seed=66,
        prompt=prompt(12, vocab=89),
        hidden=True,
        must_matter=(
            {"num_experts_per_tok": 3},
            {"sliding_window": 7},
            {"swiglu_limit": 0.5},
            {"swiglu_alpha": 1.0},
        ),
    ),
)

DEEPSEEK_V3_CASES = (
    GoldenCase(
        name="deepseek_v3",
        twist="latent attention with compressed queries, yarn with mscale, first layer dense, groups, a shared expert",
        config=deepseek_v3_5(
            heads=dict(q_lora_rank=18, kv_lora_rank=14, qk_nope_head_dim=10, qk_rope_head_dim=8, v_head_dim=12),
            experts=dict(n_routed_experts=12, num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=16),
            sizes=dict(D=44, F=62, V=99, L=3, N=4),
            rope_parameters=_YARN,
        ),
        form="5.x",
        seed=64,
        prompt=prompt(12, vocab=99),
        hidden=True,
        must_matter=(
            {"rope_parameters": DEFAULT_ROPE},
            {"rope_parameters": {**_YARN, "mscale": 0.7}},
            {"rope_parameters": {k: v for k, v in _YARN.items() if k not in ("mscale", "mscale_all_dim")}},
            {"rope_interleave": False},
            {"topk_group": 3},
            {"routed_scaling_factor": 1.0},
            {"norm_topk_prob": False},
        ),
    ),
    GoldenCase(
        name="deepseek_v3_plain_4x",
        twist="queries not compressed, no groups, no dense layer, weights not normalised, 2 shared experts; 4.x form",
        config=deepseek_v3_4_33(
            heads=dict(q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=10),
            experts=dict(n_routed_experts=7, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=18),
            sizes=dict(D=30, F=50, V=83, L=2, N=3),
            first_k_dense_replace=0,
            n_shared_experts=2,
            norm_topk_prob=False,
            routed_scaling_factor=1.0,
        ),
        form="4.x",
        seed=65,
        prompt=prompt(9, vocab=83),
        must_matter=({"norm_topk_prob": True}, {"rope_theta": 500.0}),
    ),
    GoldenCase(
        name="deepseek_v3_biases_split_half",
        twist="biases of attention, RoPE not interleaved, tied, batch of 2, 2 dense layers",
        config=deepseek_v3_5(
            heads=dict(q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=8, qk_rope_head_dim=6, v_head_dim=8),
            experts=dict(n_routed_experts=8, num_experts_per_tok=3, n_group=2, topk_group=1, moe_intermediate_size=22),
            sizes=dict(D=38, F=54, V=79, L=3, N=2),
            attention_bias=True,
            first_k_dense_replace=2,
            rope_interleave=False,
            tie_word_embeddings=True,
        ),
        form="5.x",
        seed=211,
        prompt=prompt(7, 7, vocab=79),
        must_matter=({"attention_bias": False}, {"rope_interleave": True}, {"topk_group": 2}),
    ),
)
