"""Cases of families whose routers or experts are like no other's: Llama 4, Phi-3.5-MoE, DeepSeek-V2."""

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._config_forms import DEFAULT_ROPE
from tests.goldens._sparse_forms import deepseek_v2_5, llama4_text5, phimoe5, phimoe_4_43

_MIXED = ["chunked_attention", "full_attention", "chunked_attention", "chunked_attention"]

LLAMA4_CASES = (
    GoldenCase(
        name="llama4",
        twist="chunks of 5 by turns with a layer without RoPE, whose queries grow; 2 of 5 experts; normed q, k",
        config=llama4_text5(
            K=2,
            H=12,
            E=5,
            C=2,
            dense=46,
            sizes=dict(D=40, F=26, V=93, L=4, N=4),
            attention_chunk_size=5,
            layer_types=_MIXED,
            no_rope_layers=[1, 0, 1, 0],
            moe_layers=[1, 2],
            floor_scale=3,
            attn_scale=0.4,
        ),
        form="5.x",
        seed=210,
        prompt=prompt(11, vocab=93),
        hidden=True,
        must_matter=(
            {"attention_chunk_size": 6},
            {"no_rope_layers": [1, 1, 1, 0]},
            {"floor_scale": 4},
            {"attn_temperature_tuning": False},
            {"num_experts_per_tok": 1},
            {"use_qk_norm": False},
            {"layer_types": ["chunked_attention"] * 4},
        ),
    ),
    GoldenCase(
        name="llama4_biases",
        twist="no norms, biases, all layers sparse and rotated, 1 of 4 experts, batch of 2, llama3 RoPE; bf16 file",
        config=llama4_text5(
            K=1,
            H=8,
            E=4,
            C=1,
            dense=30,
            sizes=dict(D=36, F=28, V=87, L=2, N=3),
            attention_bias=True,
            use_qk_norm=False,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 100.0,
                "factor": 8.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 16,
            },
        ),
        form="5.x",
        seed=211,
        prompt=prompt(9, 9, vocab=87),
        stored="bf16",
        must_matter=({"rope_parameters": {**DEFAULT_ROPE, "rope_theta": 100.0}},),
    ),
)

_LONG_ROPE = {
    "type": "longrope",
    "short_factor": [1.0, 1.3, 1.9, 2.4, 3.0, 4.2],
    "long_factor": [2.0, 3.3, 3.9, 5.4, 7.0, 9.2],
    "short_mscale": 1.243163121016122,
    "long_mscale": 1.243163121016122,
    "original_max_position_embeddings": 64,
}
PHIMOE_CASES = (
    GoldenCase(
        name="phimoe",
        twist="layer norms, biases everywhere, experts chosen one by one among those near; hidden states",
        config=phimoe5(K=2, E=6, sizes=dict(D=40, F=26, V=93, L=3, N=4), router_jitter_noise=0.2),
        form="5.x",
        seed=214,
        prompt=prompt(11, vocab=93),
        hidden=True,
        must_matter=({"router_jitter_noise": 0.01}, {"lm_head_bias": False}, {"attention_bias": False}),
    ),
    GoldenCase(
        name="phimoe_4x",
        twist="long RoPE with a scale of its own, no bias of the head, batch of 2; 4.x form, bf16 file",
        config=phimoe_4_43(
            K=1, E=4, sizes=dict(D=36, F=28, V=87, L=2, N=3), lm_head_bias=False, rope_scaling=_LONG_ROPE
        ),
        form="4.x",
        seed=213,
        prompt=prompt(9, 9, vocab=87),
        stored="bf16",
        must_matter=(
            {"rope_scaling": {**_LONG_ROPE, "short_factor": [1.0] * 6}},
            {"rope_scaling": {**_LONG_ROPE, "short_mscale": 1.0}},
        ),
    ),
)

DEEPSEEK_V2_CASES = (
    GoldenCase(
        name="deepseek_v2",
        twist="compressed queries, the best 2 of 4 groups by their best expert, scaled; hidden states",
        config=deepseek_v2_5(
            heads=dict(q_lora_rank=18, kv_lora_rank=16, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=10),
            experts=dict(n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=26),
            sizes=dict(D=40, F=52, V=93, L=3, N=4),
            topk_method="group_limited_greedy",
            routed_scaling_factor=3.0,
        ),
        form="5.x",
        seed=220,
        prompt=prompt(11, vocab=93),
        hidden=True,
        must_matter=({"topk_method": "greedy"}, {"topk_group": 3}, {"routed_scaling_factor": 1.0}),
    ),
    GoldenCase(
        name="deepseek_v2_lite",
        twist="queries not compressed, no groups, all layers sparse, biases of shared experts, batch of 2; bf16 file",
        config=deepseek_v2_5(
            heads=dict(q_lora_rank=None, kv_lora_rank=12, qk_nope_head_dim=4, qk_rope_head_dim=6, v_head_dim=8),
            experts=dict(n_routed_experts=5, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=18),
            sizes=dict(D=36, F=44, V=87, L=2, N=3),
            first_k_dense_replace=0,
            mlp_bias=True,
        ),
        form="5.x",
        seed=221,
        prompt=prompt(9, 9, vocab=87),
        stored="bf16",
        must_matter=({"num_experts_per_tok": 3}, {"mlp_bias": False}),
    ),
)

SPARSE_OWN_CASES = (*DEEPSEEK_V2_CASES, *LLAMA4_CASES, *PHIMOE_CASES)
