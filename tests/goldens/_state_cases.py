"""Cases with state-space layers and short convolutions; ``_state_forms`` has their ``config.json`` dictionaries."""

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._hybrid_state_forms import (
    falcon_h1_4_52,
    falcon_h1_5,
    granite_hybrid_4_56,
    granite_hybrid_5,
    nemotron_h_4_48,
    nemotron_h_5,
)  # fmt: skip
from tests.goldens._state_forms import lfm2_4_54, lfm2_5, lfm2_moe_5, mamba2_4_44, mamba2_5

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

LFM2_MOE_CASES = (
    GoldenCase(
        name="lfm2_moe",
        twist="one dense layer, then experts by corrected logistic scores; short convolutions in both; hidden states",
        config=lfm2_moe_5(
            K=2,
            E=6,
            C=2,
            kinds=[_CONV, _FULL, _CONV],
            sizes=dict(D=24, F=44, V=93, L=3, N=4),
            moe_intermediate_size=20,
        ),
        form="5.x",
        seed=305,
        prompt=prompt(21, vocab=93),
        hidden=True,
        must_matter=({"norm_topk_prob": False}, {"num_experts_per_tok": 3}),
    ),
    GoldenCase(
        name="lfm2_moe_scaled",
        twist="experts everywhere, without correction and norm, scaled; 2 taps with biases, untied; batch of 2",
        config=lfm2_moe_5(
            K=1,
            E=5,
            C=3,
            kinds=[_FULL, _CONV],
            sizes=dict(D=20, F=30, V=85, L=2, N=2),
            conv_L_cache=2,
            conv_bias=True,
            moe_intermediate_size=26,
            norm_topk_prob=False,
            num_dense_layers=0,
            routed_scaling_factor=1.7,
            tie_word_embeddings=False,
            use_expert_bias=False,
        ),
        form="5.x",
        seed=306,
        prompt=prompt(9, 9, vocab=85),
        must_matter=({"norm_topk_prob": True}, {"routed_scaling_factor": 1.0}),
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

GRANITE_HYBRID_CASES = (
    GoldenCase(
        name="granite_hybrid",
        twist="Mamba-2 and attention without RoPE, routed and shared experts, scales everywhere; hidden states",
        config=granite_hybrid_5(
            K=1,
            E=5,
            C=2,
            F_shared=36,
            kinds=["linear_attention", "full_attention", "linear_attention"],
            heads=(6, 8, 2, 10),
            sizes=dict(D=24, F=20, V=93, L=3, N=4),
        ),
        form="5.x",
        seed=320,
        prompt=prompt(37, vocab=93),
        hidden=True,
        must_matter=({"num_experts_per_tok": 3}, {"attention_multiplier": 1.0}, {"residual_multiplier": 1.0}),
    ),
    GoldenCase(
        name="granite_hybrid_dense_4x",
        twist="as published without routed experts: mamba and attention for kinds, biases; tied, batch of 2, bf16 file",
        config=granite_hybrid_4_56(
            K=2,
            F_shared=44,
            kinds=["mamba", "mamba", "attention"],
            heads=(5, 8, 1, 7),
            sizes=dict(D=20, F=30, V=85, L=3, N=2),
            attention_bias=True,
            mamba_conv_bias=False,
            mamba_d_conv=3,
            mamba_proj_bias=True,
            tie_word_embeddings=True,
        ),
        form="4.x",
        seed=331,
        prompt=prompt(9, 9, vocab=85),
        stored="bf16",
        must_matter=({"position_embedding_type": "rope"}, {"logits_scaling": 1.0}),
    ),
    GoldenCase(
        name="granite_hybrid_rope",
        twist="attention with RoPE in every layer and no state, which published small ones have",
        config=granite_hybrid_5(
            K=3,
            E=0,
            C=1,
            F_shared=44,
            kinds=["full_attention"] * 2,
            heads=(4, 9, 1, 8),
            sizes=dict(D=36, F=30, V=87, L=2, N=6),
            position_embedding_type="rope",
            rope_parameters={"rope_theta": 300.0, "rope_type": "default"},
        ),
        form="5.x",
        seed=322,
        prompt=prompt(11, vocab=87),
        must_matter=({"position_embedding_type": None},),
    ),
)

FALCON_H1_CASES = (
    GoldenCase(
        name="falcon_h1",
        twist="attention and Mamba-2 side by side, scales everywhere, no norm after the gate; hidden states",
        config=falcon_h1_5(K=1, heads=(6, 8, 2, 10), sizes=dict(D=24, F=52, V=93, L=2, N=4)),
        form="5.x",
        seed=330,
        prompt=prompt(37, vocab=93),
        hidden=True,
        must_matter=(
            {"key_multiplier": 1.0},
            {"attention_in_multiplier": 1.0},
            {"attention_out_multiplier": 1.0},
            {"ssm_in_multiplier": 1.0},
            {"ssm_out_multiplier": 1.0},
            {"ssm_multipliers": [1.0, 1.2, 0.9, 1.3, 0.8]},
            {"ssm_multipliers": [0.7, 1.2, 0.9, 1.3, 1.0]},
            {"mlp_multipliers": [1.0, 0.7]},
            {"mlp_multipliers": [1.4, 1.0]},
            {"embedding_multiplier": 1.0},
        ),
    ),
    GoldenCase(
        name="falcon_h1_normed_4x",
        twist="norm before the gate, biases everywhere, a head size of its own; tied, batch of 2, bf16 file",
        config=falcon_h1_4_52(
            K=2,
            heads=(4, 7, 1, 6),
            sizes=dict(D=20, F=30, V=85, L=2, N=2),
            attention_bias=True,
            head_dim=12,
            mamba_proj_bias=True,
            mamba_rms_norm=True,
            mlp_bias=True,
            projectors_bias=True,
            tie_word_embeddings=True,
        ),
        form="4.x",
        seed=401,
        prompt=prompt(9, 9, vocab=85),
        stored="bf16",
        must_matter=({"mamba_norm_before_gate": False}, {"rope_theta": 50.0}),
    ),
)

NEMOTRON_H_CASES = (
    GoldenCase(
        name="nemotron_h",
        twist="layers of one mixer each: Mamba-2, ungated experts over compressed activations, attention, squared relu",
        config=nemotron_h_5(
            K=1,
            H=8,
            E=6,
            C=2,
            kinds=["linear_attention", "moe", "full_attention", "mlp"],
            heads=(6, 7, 2, 10),
            sizes=dict(D=24, F=52, V=93, L=4, N=4),
            moe_latent_size=14,
            n_group=3,
            routed_scaling_factor=1.5,
            topk_group=2,
        ),
        form="5.x",
        seed=340,
        prompt=prompt(37, vocab=93),
        hidden=True,
        must_matter=({"topk_group": 1}, {"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}),
    ),
    GoldenCase(
        name="nemotron_h_4x",
        twist="a pattern of letters as published, biases in feed-forward and Mamba-2; batch of 2, bf16 file",
        config=nemotron_h_4_48(
            K=2,
            H=6,
            pattern="M-*M",
            heads=(4, 5, 1, 7),
            sizes=dict(D=20, F=30, V=85, L=4, N=2),
            mlp_bias=True,
            use_bias=True,
            use_conv_bias=False,
        ),
        form="4.x",
        seed=341,
        prompt=prompt(9, 9, vocab=85),
        stored="bf16",
        must_matter=({"layer_norm_epsilon": 0.1}, {"mlp_hidden_act": "relu"}),
    ),
)

STATE_CASES = (
    *LFM2_CASES,
    *LFM2_MOE_CASES,
    *MAMBA2_CASES,
    *GRANITE_HYBRID_CASES,
    *FALCON_H1_CASES,
    *NEMOTRON_H_CASES,
)
