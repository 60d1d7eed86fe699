"""The Mistral, Qwen2 and Qwen3 cases: windows, biases and norms of queries and keys."""

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._config_forms import (
    DEFAULT_ROPE,
    mistral5,
    mistral_4_36,
    qwen2_4_40,
    qwen2_5,
    qwen3_4_51,
    qwen3_5,
)

_YARN_MSCALE = {
    "rope_type": "yarn",
    "rope_theta": 200.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
    "mscale": 1.4,
    "mscale_all_dim": 0.5,
}

MISTRAL_CASES = (
    GoldenCase(
        name="mistral_window",
        twist="sliding window 8, prompt of 20: already the prompt exceeds the window",
        config=mistral5(K=2, H=8, sizes=dict(D=48, F=78, V=99, L=3, N=6), sliding_window=8),
        form="5.x",
        seed=30,
        prompt=prompt(20, vocab=99),
        hidden=True,
        must_matter=({"sliding_window": None}, {"sliding_window": 7}, {"sliding_window": 9}),
    ),
    GoldenCase(
        name="mistral_window_crossing_batch",
        twist="sliding window 6, prompts of 4: decoding grows past the window; batch of 2; 4.x form",
        config=mistral_4_36(K=1, sizes=dict(D=40, F=64, V=105, L=2, N=5), sliding_window=6),
        form="4.x",
        seed=31,
        prompt=prompt(4, 4, vocab=105),
        must_matter=({"sliding_window": None}, {"sliding_window": 5}, {"sliding_window": 7}),
    ),
    GoldenCase(
        name="mistral_full_4x",
        twist="Mistral without a window (null), rope_theta 1e6, no head_dim, 4.x form; bf16 file",
        config=mistral_4_36(K=2, sizes=dict(D=56, F=82, V=115, L=2, N=4)),
        form="4.x",
        seed=32,
        prompt=prompt(9, vocab=115),
        stored="bf16",
        must_matter=({"rope_theta": 10000.0},),
    ),
    GoldenCase(
        name="mistral_narrow_heads",
        twist="head_dim smaller than D / N (as Mistral Nemo)",
        config=mistral5(K=2, H=6, sizes=dict(D=40, F=72, V=81, L=3, N=4)),
        form="5.x",
        seed=33,
        prompt=prompt(12, vocab=81),
    ),
    GoldenCase(
        name="mistral_yarn_mscale",
        twist="yarn with mscale and mscale_all_dim",
        config=mistral5(K=1, H=14, sizes=dict(D=42, F=68, V=77, L=2, N=3), rope_parameters=_YARN_MSCALE),
        form="5.x",
        seed=34,
        prompt=prompt(15, vocab=77),
        must_matter=(
            {"rope_parameters": DEFAULT_ROPE},
            {"rope_parameters": {k: v for k, v in _YARN_MSCALE.items() if k not in ("mscale", "mscale_all_dim")}},
            {"rope_parameters": {**_YARN_MSCALE, "attention_factor": 1.0}},
        ),
    ),
)

QWEN2_CASES = (
    GoldenCase(
        name="qwen2_full_4x",
        twist="q, k, v biases without an o bias; a stored window that use_sliding_window false switches off; tied",
        config=qwen2_4_40(
            K=2,
            sizes=dict(D=56, F=76, V=121, L=3, N=4),
            sliding_window=5,
            max_window_layers=1,
            tie_word_embeddings=True,
        ),
        form="4.x",
        seed=40,
        prompt=prompt(14, vocab=121),
        must_matter=({"use_sliding_window": True},),
    ),
    GoldenCase(
        name="qwen2_window_layers",
        twist="use_sliding_window with max_window_layers 2 of 4: layers 0-1 full, layers 2-3 see 6 keys",
        config=qwen2_5(
            K=1,
            sizes=dict(D=36, F=60, V=73, L=4, N=3),
            layer_types=["full_attention", "full_attention", "sliding_attention", "sliding_attention"],
            max_window_layers=2,
            sliding_window=6,
            use_sliding_window=True,
        ),
        form="5.x",
        seed=41,
        prompt=prompt(15, vocab=73),
        must_matter=(
            {"layer_types": ["full_attention"] * 4},
            {"layer_types": ["sliding_attention"] * 4},
            {"layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 2},
            {"sliding_window": 7},
        ),
    ),
    GoldenCase(
        name="qwen2_window_layers_4x",
        twist="the same rule from the 4.x form, which has no layer_types: max_window_layers 1 of 3, window 7",
        config=qwen2_4_40(
            K=2, sizes=dict(D=48, F=70, V=127, L=3, N=6), sliding_window=7, max_window_layers=1, use_sliding_window=True
        ),
        form="4.x",
        seed=42,
        prompt=prompt(10, vocab=127),
        must_matter=({"max_window_layers": 2}, {"max_window_layers": 0}, {"use_sliding_window": False}),
    ),
    GoldenCase(
        name="qwen2_yarn_4x",
        twist="yarn as Qwen2.5's model card gives it: key 'type', defaults for all else, 4.x form",
        config=qwen2_4_40(
            K=4,
            sizes=dict(D=64, F=86, V=69, L=2, N=4),
            rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
            rope_theta=1000.0,
        ),
        form="4.x",
        seed=43,
        prompt=prompt(16, vocab=69),
        must_matter=({"rope_scaling": None},),
    ),
)

QWEN3_CASES = (
    GoldenCase(
        name="qwen3",
        twist="norms of queries and keys, explicit head_dim greater than D / N, tied, rope_theta 1e6; hidden states",
        config=qwen3_5(
            K=2,
            H=14,
            sizes=dict(D=48, F=80, V=123, L=3, N=4),
            rope_parameters={"rope_theta": 1000000.0, "rope_type": "default"},
            tie_word_embeddings=True,
        ),
        form="5.x",
        seed=150,
        prompt=prompt(9, vocab=123),
        hidden=True,
    ),
    GoldenCase(
        name="qwen3_bias_4x",
        twist="attention_bias with norms of queries and keys, untied, K = N, eps 1e-3, 4.x form",
        config=qwen3_4_51(K=3, H=8, sizes=dict(D=30, F=50, V=75, L=2, N=3), attention_bias=True, rms_norm_eps=1e-3),
        form="4.x",
        seed=151,
        prompt=prompt(8, vocab=75),
        must_matter=({"attention_bias": False}, {"rms_norm_eps": 1e-6}),
    ),
    GoldenCase(
        name="qwen3_yarn_window",
        twist="yarn after the norms of queries and keys, and a window from layer 1 on",
        config=qwen3_5(
            K=1,
            H=16,
            sizes=dict(D=40, F=66, V=67, L=2, N=5),
            layer_types=["full_attention", "sliding_attention"],
            max_window_layers=1,
            sliding_window=5,
            use_sliding_window=True,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 100.0,
                "factor": 2.0,
                "original_max_position_embeddings": 64,
            },
        ),
        form="5.x",
        seed=52,
        prompt=prompt(12, vocab=67),
        must_matter=(
            {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
            {"layer_types": ["full_attention"] * 2},
        ),
    ),
)
