"""The cases of further dense families."""

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._config_forms import DEFAULT_ROPE
from tests.goldens._family_forms import (
    gemma2_5,
    gemma3_4_50,
    gemma3_5,
    gemma5,
    gemma_4_38,
    glm4_5,
    glm5,
    gpt2_4_0,
    gpt2_5,
    gpt_bigcode5,
    gpt_bigcode_4_28,
    gpt_neox5,
    gpt_neox_4_24,
    granite5,
    olmo2_5,
    phi3_4_40,
    phi3_5,
    smollm3_4_53,
    smollm3_5,
    stablelm5,
)

_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
    "long_factor": [1.2, 1.9, 3.0, 4.5, 6.0, 8.0],
    "original_max_position_embeddings": 16,
}
_FULL, _SLIDING = "full_attention", "sliding_attention"

PHI3_CASES = (
    GoldenCase(
        name="phi3_longrope_partial",
        twist="fused projections, 12 of 16 dims rotated, longrope, the prompt (18) past the original length (16)",
        config=phi3_5(K=2, rope=_LONGROPE, sizes=dict(D=64, F=76, V=95, L=2, N=4)),
        form="5.x",
        seed=70,
        prompt=prompt(18, vocab=95),
        must_matter=(
            {"rope_parameters": {**DEFAULT_ROPE, "partial_rotary_factor": 0.75}},
            {"rope_parameters": {**_LONGROPE, "long_factor": _LONGROPE["short_factor"]}},
        ),
    ),
    GoldenCase(
        name="phi3_window_4x",
        twist="fused projections, window 6, grouped queries; 4.x form; hidden states",
        config=phi3_4_40(K=1, sizes=dict(D=48, F=70, V=89, L=3, N=3), sliding_window=6),
        form="4.x",
        seed=71,
        prompt=prompt(9, vocab=89),
        hidden=True,
        must_matter=({"sliding_window": None}, {"sliding_window": 7}),
    ),
)

GRANITE_CASES = (
    GoldenCase(
        name="granite",
        twist="scales of embeddings, scores, residuals and logits; biases; hidden states",
        config=granite5(
            K=2,
            sizes=dict(D=48, F=66, V=94, L=3, N=4),
            attention_bias=True,
            mlp_bias=True,
        ),
        form="5.x",
        seed=72,
        prompt=prompt(9, vocab=94),
        hidden=True,
        must_matter=(
            {"attention_multiplier": 0.3},
            {"embedding_multiplier": 1.0},
            {"residual_multiplier": 1.0},
            {"logits_scaling": 1.0},
        ),
    ),
)

SMOLLM3_CASES = (
    GoldenCase(
        name="smollm3_window",
        twist="two layers do not rotate, one of them has a window of 5; tied",
        config=smollm3_5(
            K=2,
            sizes=dict(D=40, F=60, V=92, L=4, N=4),
            rotates=[1, 0, 1, 0],
            types=[_FULL, _SLIDING, _FULL, _FULL],
            sliding_window=5,
            use_sliding_window=True,
            tie_word_embeddings=True,
        ),
        form="5.x",
        seed=73,
        prompt=prompt(11, vocab=92),
        must_matter=({"no_rope_layers": [1, 1, 1, 1]}, {"sliding_window": 6}),
    ),
    GoldenCase(
        name="smollm3_4x",
        twist="every second layer does not rotate, by no_rope_layer_interval; 4.x form",
        config=smollm3_4_53(K=1, sizes=dict(D=32, F=56, V=86, L=3, N=4)),
        form="4.x",
        seed=74,
        prompt=prompt(8, vocab=86),
        must_matter=({"no_rope_layer_interval": 4}, {"rope_theta": 10000.0}),
    ),
)

OLMO2_CASES = (
    GoldenCase(
        name="olmo2",
        twist="norms after attention and feed-forward, norms over all heads of queries and keys; hidden states",
        config=olmo2_5(K=2, sizes=dict(D=48, F=64, V=90, L=3, N=6)),
        form="5.x",
        seed=75,
        prompt=prompt(10, vocab=90),
        hidden=True,
        must_matter=({"rms_norm_eps": 1e-2},),
    ),
)

GEMMA_CASES = (
    GoldenCase(
        name="gemma",
        twist="zero-centred norms, scaled embeddings, gelu gate, head_dim not D / N; untied; hidden states",
        config=gemma5(K=1, H=10, sizes=dict(D=32, F=58, V=88, L=3, N=4)),
        form="5.x",
        seed=80,
        prompt=prompt(9, vocab=88),
        hidden=True,
    ),
    GoldenCase(
        name="gemma_4x",
        twist="hidden_act gelu stands for its tanh approximation; 4.x form, bf16 file",
        config=gemma_4_38(K=2, H=8, sizes=dict(D=40, F=62, V=84, L=2, N=4)),
        form="4.x",
        seed=81,
        prompt=prompt(7, vocab=84),
        stored="bf16",
    ),
    GoldenCase(
        name="gemma2",
        twist="four norms, capped scores and logits, window 5 in every other layer, its own scale; hidden states",
        config=gemma2_5(K=2, H=12, window=5, types=[_SLIDING, _FULL, _SLIDING], sizes=dict(D=48, F=64, V=93, L=3, N=4)),
        form="5.x",
        seed=82,
        prompt=prompt(11, vocab=93),
        hidden=True,
        must_matter=(
            {"attn_logit_softcapping": None},
            {"final_logit_softcapping": None},
            {"sliding_window": 6},
            {"query_pre_attn_scalar": 12},
        ),
    ),
    GoldenCase(
        name="gemma3",
        twist="normed queries and keys, a RoPE of their own for layers with a window; hidden states",
        config=gemma3_5(K=1, H=10, window=6, types=[_SLIDING, _SLIDING, _FULL], sizes=dict(D=36, F=60, V=91, L=3, N=3)),
        form="5.x",
        seed=83,
        prompt=prompt(12, vocab=91),
        hidden=True,
        must_matter=({"sliding_window": 7}, {"query_pre_attn_scalar": 10}),
    ),
    GoldenCase(
        name="gemma3_4x",
        twist="every second layer looks at all, by sliding_window_pattern; rope_local_base_freq; 4.x form",
        config=gemma3_4_50(K=2, H=8, sizes=dict(D=32, F=54, V=85, L=4, N=4)),
        form="4.x",
        seed=84,
        prompt=prompt(9, vocab=85),
        must_matter=({"rope_local_base_freq": 10000}, {"sliding_window_pattern": 3}),
    ),
)

GLM_CASES = (
    GoldenCase(
        name="glm",
        twist="half of a head rotated, neighbours in pairs; fused gate and up; biases of q, k, v; hidden states",
        config=glm5(K=2, H=12, sizes=dict(D=40, F=56, V=87, L=3, N=4)),
        form="5.x",
        seed=85,
        prompt=prompt(10, vocab=87),
        hidden=True,
        must_matter=({"attention_bias": False},),
    ),
    GoldenCase(
        name="glm4",
        twist="the same with four norms, under other names; no biases",
        config=glm4_5(K=1, H=8, sizes=dict(D=36, F=50, V=82, L=2, N=3), attention_bias=False),
        form="5.x",
        seed=86,
        prompt=prompt(8, vocab=82),
    ),
)

STABLELM_CASES = (
    GoldenCase(
        name="stablelm",
        twist="layer norms, a quarter of a head rotated, biases of q, k, v; hidden states",
        config=stablelm5(K=2, sizes=dict(D=64, F=72, V=96, L=3, N=4), use_qkv_bias=True),
        form="5.x",
        seed=400,
        prompt=prompt(10, vocab=96),
        hidden=True,
        must_matter=({"use_qkv_bias": False}, {"layer_norm_eps": 1e-2}),
    ),
    GoldenCase(
        name="stablelm_normed",
        twist="layer norms of queries and keys, stored head by head; side by side behind one norm",
        config=stablelm5(K=2, sizes=dict(D=96, F=50, V=83, L=2, N=6), use_parallel_residual=True, qk_layernorm=True),
        form="5.x",
        seed=903,
        prompt=prompt(9, vocab=83),
        must_matter=({"layer_norm_eps": 1e-2},),
    ),
    GoldenCase(
        name="stablelm_parallel",
        twist="attention and feed-forward side by side behind one norm; batch of 2",
        config=stablelm5(K=2, sizes=dict(D=48, F=60, V=81, L=2, N=2), use_parallel_residual=True),
        form="5.x",
        seed=88,
        prompt=prompt(7, 7, vocab=81),
    ),
)

GPT_CASES = (
    GoldenCase(
        name="gpt_neox",
        twist="attention and feed-forward side by side, layer norms, a quarter of a head rotated; hidden states",
        config=gpt_neox5(sizes=dict(D=64, F=76, V=97, L=3, N=4)),
        form="5.x",
        seed=90,
        prompt=prompt(10, vocab=97),
        hidden=True,
        must_matter=({"use_parallel_residual": False}, {"hidden_act": "relu"}, {"attention_bias": False}),
    ),
    GoldenCase(
        name="gpt_neox_4x",
        twist="one after the other; rotary_pct and rotary_emb_base; batch of 2; 4.x form",
        config=gpt_neox_4_24(sizes=dict(D=48, F=64, V=86, L=2, N=4), use_parallel_residual=False),
        form="4.x",
        seed=91,
        prompt=prompt(7, 7, vocab=86),
        must_matter=({"use_parallel_residual": True}, {"rotary_pct": 0.25}, {"rotary_emb_base": 10000}),
    ),
    GoldenCase(
        name="gpt2",
        twist="learned positions, matrices stored input-major, F given; untied; hidden states",
        config=gpt2_5(D=48, V=95, L=3, N=4, positions=40, n_inner=70, tie_word_embeddings=False),
        form="5.x",
        seed=501,
        prompt=prompt(11, vocab=95),
        hidden=True,
        must_matter=({"activation_function": "relu"}, {"layer_norm_epsilon": 1e-2}),
    ),
    GoldenCase(
        name="gpt2_4x",
        twist="keys without the prefix, F = 4 D, tied without saying so; 4.x form",
        config=gpt2_4_0(D=32, V=84, L=2, N=2, positions=32),
        form="4.x",
        seed=500,
        prompt=prompt(8, vocab=84),
    ),
    GoldenCase(
        name="gpt_bigcode",
        twist="one head of keys and values; F given; untied; hidden states",
        config=gpt_bigcode5(D=48, V=95, L=3, N=4, positions=40, n_inner=70, tie_word_embeddings=False),
        form="5.x",
        seed=503,
        prompt=prompt(11, vocab=95),
        hidden=True,
        must_matter=({"activation_function": "relu"}, {"layer_norm_epsilon": 1e-2}),
    ),
    GoldenCase(
        name="gpt_bigcode_heads_4x",
        twist="each head's query, key and value side by side; F = 4 D, tied without saying so; 4.x form",
        config=gpt_bigcode_4_28(D=36, V=84, L=2, N=3, positions=32, multi_query=False),
        form="4.x",
        seed=507,
        prompt=prompt(8, vocab=84),
    ),
)
