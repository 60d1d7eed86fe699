"""Cases with state-space layers and short convolutions; ``_state_forms`` has their ``config.json`` dictionaries."""

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._state_forms import lfm2_4_54, lfm2_5, mamba2_4_44, mamba2_5

_CONV, _FULL = "conv", "full_attention"

LFM2_CASES = (
    GoldenCase(
        name="lfm2",
        twist="short convolutions of 3 taps with biases, attention with normed heads; hidden states",
        config=lfm2_5(
            K=1,
            kinds=[_CONV, _FULL, _CONV, _CONV],
            sizes=dict(D=40, F=90, V=93, L=4, N=4),
            block_ffn_dim_multiplier=0.9,
            block_multiple_of=8,
            conv_bias=True,
        ),
        form="5.x",
        seed=300,
        prompt=prompt(37, vocab=93),
        hidden=True,
        must_matter=({"norm_eps": 0.5}, {"rope_parameters": {"rope_theta": 100.0, "rope_type": "default"}}),
    ),
    GoldenCase(
        name="lfm2_4x",
        twist="as published: block_ff_dim, full_attn_idxs, tie_embedding; 4 taps, batch of 2, untied, bf16 file",
        config=lfm2_4_54(
            K=2,
            kinds=[_FULL, _CONV, _CONV],
            sizes=dict(D=24, F=60, V=85, L=3, N=2),
            block_multiple_of=6,
            conv_L_cache=4,
            tie_embedding=False,
        ),
        form="4.x",
        seed=301,
        prompt=prompt(9, 9, vocab=85),
        stored="bf16",
        must_matter=({"rope_theta": 100.0},),
    ),
)

MAMBA2_CASES = (
    GoldenCase(
        name="mamba2",
        twist="no attention: states alone, 2 groups of heads, biases in the projections; hidden states",
        config=mamba2_5(D=24, V=93, L=3, heads=(6, 8, 2, 10), use_bias=True),
        form="5.x",
        seed=310,
        prompt=prompt(37, vocab=93),
        hidden=True,
        must_matter=({"layer_norm_epsilon": 0.1}, {"hidden_act": "gelu"}),
    ),
    GoldenCase(
        name="mamba2_4x",
        twist="one group, 3 taps without biases, tied; batch of 2, bf16 file",
        config=mamba2_4_44(
            D=20, V=85, L=2, heads=(5, 12, 1, 7), conv_kernel=3, tie_word_embeddings=True, use_conv_bias=False
        ),
        form="4.x",
        seed=311,
        prompt=prompt(9, 9, vocab=85),
        stored="bf16",
        must_matter=({"layer_norm_epsilon": 0.1},),
    ),
)

STATE_CASES = (*LFM2_CASES, *MAMBA2_CASES)
