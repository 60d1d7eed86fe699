"""The cases of dense families that are nearly a Llama."""

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._config_forms import DEFAULT_ROPE
from tests.goldens._llama_kind_forms import (
    FULL,
    SLIDING,
    cohere2_4_48,
    cohere2_5,
    cohere5,
    ernie4_5_5,
    exaone4_4_54,
    exaone4_5,
    hunyuan5,
    hunyuan_4_56,
    ministral3_5,
    olmo3_4_57,
    olmo3_5,
    seed_oss5,
)

_YARN = {
    "attention_factor": 1.3,
    "beta_fast": 8.0,
    "beta_slow": 1.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "rope_theta": 500000.0,
    "rope_type": "yarn",
}
_PLAIN = {"rope_theta": 500000.0, "rope_type": "default"}

_OLMO3_CASES = (
    GoldenCase(
        name="olmo3",
        twist="norms after the parts, yarn in layers without a window and not in those with one (5); hidden states",
        config=olmo3_5(
            K=3,
            window=5,
            types=[SLIDING, FULL, SLIDING],
            rope={"full_attention": _YARN, "sliding_attention": _PLAIN},
            sizes=dict(D=48, F=70, V=92, L=3, N=6),
        ),
        form="5.x",
        seed=301,
        prompt=prompt(11, vocab=92),
        hidden=True,
        must_matter=(
            {"rope_parameters": {"full_attention": _PLAIN, "sliding_attention": _PLAIN}},
            {"rope_parameters": {"full_attention": _YARN, "sliding_attention": _YARN}},
            {"sliding_window": 6},
            {"layer_types": [FULL, FULL, SLIDING]},
        ),
    ),
    GoldenCase(
        name="olmo3_4x",
        twist="every fourth layer without a window (6), multi-head; 4.x form, bf16 file",
        config=olmo3_4_57(sizes=dict(D=40, F=58, V=87, L=4, N=5)),
        form="4.x",
        seed=302,
        prompt=prompt(9, vocab=87),
        stored="bf16",
        must_matter=({"sliding_window": 7}, {"layer_types": [SLIDING] * 4}),
    ),
)

_GROWING = {
    "beta_fast": 16.0,
    "beta_slow": 1.0,
    "factor": 4.0,
    "llama_4_scaling_beta": 0.6,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 8,
    "rope_theta": 10000.0,
    "rope_type": "yarn",
}

_MINISTRAL3_CASES = (
    GoldenCase(
        name="ministral3",
        twist="yarn, queries that grow at positions 8 and 16, head_dim not D / N; hidden states",
        config=ministral3_5(K=2, H=16, rope=_GROWING, sizes=dict(D=40, F=62, V=91, L=3, N=4)),
        form="5.x",
        seed=310,
        prompt=prompt(10, vocab=91),
        hidden=True,
        must_matter=(
            {"rope_parameters": _GROWING | {"llama_4_scaling_beta": 0.0}},
            {"rope_parameters": _GROWING | {"mscale_all_dim": 0.5}},
        ),
    ),
)

_COHERE_CASES = (
    GoldenCase(
        name="cohere",
        twist="one layer norm for both parts, interleaved RoPE, scaled logits, tied, biases; hidden states",
        config=cohere5(K=2, sizes=dict(D=48, F=66, V=93, L=3, N=4), attention_bias=True),
        form="5.x",
        seed=320,
        prompt=prompt(8, vocab=93),
        hidden=True,
        must_matter=({"logit_scale": 0.5}, {"layer_norm_eps": 1e-1}, {"attention_bias": False}),
    ),
    GoldenCase(
        name="cohere_normed",
        twist="layer norms of queries and keys with a weight for each head, batch of 2",
        config=cohere5(K=2, sizes=dict(D=48, F=58, V=89, L=2, N=6), use_qk_norm=True),
        form="5.x",
        seed=911,
        prompt=prompt(7, 7, vocab=89),
        must_matter=({"layer_norm_eps": 1e-1},),
    ),
    GoldenCase(
        name="cohere2",
        twist="window 5 and RoPE in all layers but the second, untied; hidden states",
        config=cohere2_5(
            K=1,
            window=5,
            types=[SLIDING, FULL, SLIDING],
            sizes=dict(D=48, F=62, V=90, L=3, N=6),
            tie_word_embeddings=False,
        ),
        form="5.x",
        seed=321,
        prompt=prompt(10, vocab=90),
        hidden=True,
        must_matter=({"sliding_window": 6}, {"layer_types": [SLIDING] * 3}, {"logit_scale": 0.5}),
    ),
    GoldenCase(
        name="cohere2_4x",
        twist="every second layer without a window (5) and RoPE; 4.x form, f16 file",
        config=cohere2_4_48(K=2, sizes=dict(D=32, F=54, V=85, L=2, N=4)),
        form="4.x",
        seed=322,
        prompt=prompt(9, vocab=85),
        stored="f16",
        must_matter=({"sliding_window_pattern": 3}, {"rope_theta": 100.0}),
    ),
)

_EXAONE4_CASES = (
    GoldenCase(
        name="exaone4",
        twist="norms after the parts and of each head, no window: RoPE in every layer; hidden states",
        config=exaone4_5(K=2, types=[FULL] * 3, window=None, sizes=dict(D=48, F=68, V=94, L=3, N=4)),
        form="5.x",
        seed=330,
        prompt=prompt(9, vocab=94),
        hidden=True,
        must_matter=({"rms_norm_eps": 1e-2}, {"rope_parameters": {**DEFAULT_ROPE, "rope_theta": 100.0}}),
    ),
    GoldenCase(
        name="exaone4_4x",
        twist="window 5, RoPE only in layers with one, scaled as Llama 3's, head_dim not D / N; 4.x form, bf16 file",
        config=exaone4_4_54(K=1, H=12, types=[SLIDING, FULL, SLIDING], sizes=dict(D=40, F=60, V=88, L=3, N=3)),
        form="4.x",
        seed=331,
        prompt=prompt(11, vocab=88),
        stored="bf16",
        must_matter=({"layer_types": [SLIDING] * 3}, {"sliding_window": 6}, {"rope_scaling": None}),
    ),
)

_ALPHA = {"alpha": 50.0, "factor": 1.0, "rope_theta": 10000.0, "rope_type": "dynamic"}

_HUNYUAN_CASES = (
    GoldenCase(
        name="hunyuan_v1_dense",
        twist="each head normed after RoPE, whose base a fixed alpha stretches, biases; hidden states",
        config=hunyuan5(K=2, H=14, rope=_ALPHA, sizes=dict(D=48, F=64, V=95, L=3, N=4), attention_bias=True),
        form="5.x",
        seed=340,
        prompt=prompt(10, vocab=95),
        hidden=True,
        must_matter=({"rope_parameters": DEFAULT_ROPE}, {"attention_bias": False}, {"rms_norm_eps": 1e-2}),
    ),
    GoldenCase(
        name="hunyuan_v1_dense_4x",
        twist="alpha 1000 in rope_scaling; 4.x form, bf16 file",
        config=hunyuan_4_56(K=1, H=10, sizes=dict(D=40, F=56, V=86, L=2, N=3), tie_word_embeddings=False),
        form="4.x",
        seed=343,
        prompt=prompt(12, vocab=86),
        stored="bf16",
        must_matter=({"rope_scaling": None},),
    ),
)

_OTHER_CASES = (
    GoldenCase(
        name="seed_oss",
        twist="biases of queries, keys and values alone, head_dim not D / N; hidden states",
        config=seed_oss5(K=2, H=12, sizes=dict(D=40, F=58, V=89, L=3, N=4)),
        form="5.x",
        seed=350,
        prompt=prompt(8, vocab=89),
        hidden=True,
        must_matter=({"attention_bias": False},),
    ),
    GoldenCase(
        name="ernie4_5",
        twist="interleaved RoPE, tied, head_dim not D / N; hidden states",
        config=ernie4_5_5(K=1, H=14, sizes=dict(D=48, F=60, V=83, L=3, N=3)),
        form="5.x",
        seed=360,
        prompt=prompt(9, vocab=83),
        hidden=True,
        must_matter=({"rope_parameters": {**DEFAULT_ROPE, "rope_theta": 100.0}},),
    ),
    GoldenCase(
        name="ernie4_5_biases",
        twist="use_bias: in attention and in the feed-forward; untied",
        config=ernie4_5_5(K=2, H=8, sizes=dict(D=32, F=54, V=81, L=2, N=4), use_bias=True, tie_word_embeddings=False),
        form="5.x",
        seed=361,
        prompt=prompt(7, vocab=81),
        must_matter=({"use_bias": False},),
    ),
)

LLAMA_KIND_CASES = (
    *_OLMO3_CASES,
    *_MINISTRAL3_CASES,
    *_COHERE_CASES,
    *_EXAONE4_CASES,
    *_HUNYUAN_CASES,
    *_OTHER_CASES,
)
