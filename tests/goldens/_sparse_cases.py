"""Cases of further families with mixtures of experts."""

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._config_forms import DEFAULT_ROPE
from tests.goldens._sparse_forms import (
    ernie4_5_moe5,
    glm4_moe5,
    glm4_moe_4_54,
    minimax_m2_4_46,
    minimax_m2_5,
    qwen2_moe5,
    qwen2_moe_4_39,
)

GLM4_MOE_CASES = (
    GoldenCase(
        name="glm4_moe",
        twist="first layer dense, then 6 experts in 2 groups, 3 chosen of 1 group, not normalised, scaled; two shared",
        config=glm4_moe5(
            K=2,
            H=12,
            E=6,
            C=3,
            inner=26,
            sizes=dict(D=40, F=52, V=93, L=3, N=4),
            n_group=2,
            topk_group=1,
            n_shared_experts=2,
            norm_topk_prob=False,
            routed_scaling_factor=1.6,
        ),
        form="5.x",
        seed=200,
        prompt=prompt(11, vocab=93),
        hidden=True,
        must_matter=(
            {"topk_group": 2},
            {"norm_topk_prob": True},
            {"routed_scaling_factor": 1.0},
            {"use_qk_norm": False},
            {"rope_parameters": {**DEFAULT_ROPE, "partial_rotary_factor": 1.0}},
        ),
    ),
    GoldenCase(
        name="glm4_moe_4x",
        twist="no norms of queries and keys, no biases, batch of 2, all layers sparse; 4.x form, bf16 file",
        config=glm4_moe_4_54(
            K=1,
            H=8,
            E=5,
            C=2,
            inner=18,
            sizes=dict(D=36, F=44, V=87, L=2, N=3),
            first_k_dense_replace=0,
            attention_bias=False,
        ),
        form="4.x",
        seed=201,
        prompt=prompt(9, 9, vocab=87),
        stored="bf16",
        must_matter=({"num_experts_per_tok": 3}, {"rope_theta": 100}),
    ),
)

QWEN2_MOE_CASES = (
    GoldenCase(
        name="qwen2_moe",
        twist="windows in every other of two first layers, a dense layer by turns, normalised; gated shared expert",
        config=qwen2_moe5(
            K=2,
            E=7,
            C=3,
            inner=26,
            shared=22,
            sizes=dict(D=40, F=52, V=93, L=4, N=4),
            decoder_sparse_step=2,
            norm_topk_prob=True,
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=2,
            layer_types=["sliding_attention", *["full_attention"] * 3],
        ),
        form="5.x",
        seed=202,
        prompt=prompt(11, vocab=93),
        hidden=True,
        must_matter=({"sliding_window": 5}, {"norm_topk_prob": False}, {"num_experts_per_tok": 2}),
    ),
    GoldenCase(
        name="qwen2_moe_4x",
        twist="weights not normalised, batch of 2, tied; 4.x form, bf16 file",
        config=qwen2_moe_4_39(
            K=3, E=4, C=2, inner=18, shared=30, sizes=dict(D=36, F=44, V=87, L=2, N=3), tie_word_embeddings=True
        ),
        form="4.x",
        seed=203,
        prompt=prompt(9, 9, vocab=87),
        stored="bf16",
        must_matter=({"norm_topk_prob": True},),
    ),
)

MINIMAX_M2_CASES = (
    GoldenCase(
        name="minimax_m2",
        twist="norms over all heads of queries and keys, half of a head rotated, corrected scores; hidden states",
        config=minimax_m2_5(K=2, H=12, E=6, C=3, sizes=dict(D=40, F=26, V=93, L=3, N=4)),
        form="5.x",
        seed=204,
        prompt=prompt(11, vocab=93),
        hidden=True,
        must_matter=(
            {"num_experts_per_tok": 2},
            {"rope_parameters": {**DEFAULT_ROPE, "partial_rotary_factor": 1.0}},
        ),
    ),
    GoldenCase(
        name="minimax_m2_4x",
        twist="rotary_dim, batch of 2; 4.x form, bf16 file",
        config=minimax_m2_4_46(K=1, H=8, E=5, C=2, sizes=dict(D=36, F=28, V=87, L=2, N=3), rope_theta=100),
        form="4.x",
        seed=205,
        prompt=prompt(9, 9, vocab=87),
        stored="bf16",
        must_matter=({"rotary_dim": 8}, {"rope_theta": 1000}),
    ),
)

ERNIE4_5_MOE_CASES = (
    GoldenCase(
        name="ernie4_5_moe",
        twist="corrected softmax, first and last layer dense, shared experts, interleaved RoPE, tied; hidden states",
        config=ernie4_5_moe5(
            K=2, E=6, C=3, inner=26, sizes=dict(D=40, F=52, V=93, L=4, N=4), moe_layer_end_index=2, moe_norm_min=0.6
        ),
        form="5.x",
        seed=206,
        prompt=prompt(11, vocab=93),
        hidden=True,
        must_matter=({"moe_norm_min": 1e-12}, {"moe_k": 2}),
    ),
    GoldenCase(
        name="ernie4_5_moe_biases",
        twist="biases everywhere, the head and shared experts included; every other layer sparse; batch of 2",
        config=ernie4_5_moe5(
            K=1,
            E=4,
            C=2,
            inner=18,
            sizes=dict(D=36, F=44, V=87, L=3, N=3),
            moe_layer_interval=2,
            moe_num_shared_experts=1,
            use_bias=True,
            tie_word_embeddings=False,
            head_dim=8,
        ),
        form="5.x",
        seed=208,
        prompt=prompt(9, 9, vocab=87),
        stored="bf16",
        must_matter=({"use_bias": False},),
    ),
)

SPARSE_CASES = (
    *GLM4_MOE_CASES,
    *QWEN2_MOE_CASES,
    *MINIMAX_M2_CASES,
    *ERNIE4_5_MOE_CASES,
)
