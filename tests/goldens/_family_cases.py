"""The cases of further dense families."""

from tests.goldens._case_types import GoldenCase
from tests.goldens._config_forms import DEFAULT_ROPE
from tests.goldens._family_forms import granite5, olmo2_5, phi3_4_40, phi3_5, smollm3_4_53, smollm3_5
from tests.goldens._prompts import prompt

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
