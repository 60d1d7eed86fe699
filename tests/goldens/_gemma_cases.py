"""Later Gemmas, and files that wrap a Gemma: golden cases."""

from tests.goldens._case_types import GoldenCase, prompt
from tests.goldens._gemma_forms import (
    gemma3_wrapped_4_50,
    gemma3n_4_53,
    gemma3n_5,
    gemma4_5,
    gemma4_unified_5,
    gemma4_wrapped_5,
)

_SLIDING, _FULL = "sliding_attention", "full_attention"

GEMMA_TEXT_CASES = (
    GoldenCase(
        name="gemma3_wrapped_4x",
        twist="the decoder inside a checkpoint with a vision tower; text_config with little in it",
        config=gemma3_wrapped_4_50(K=1, H=10, sizes=dict(D=36, F=50, V=83, L=7, N=2)),
        form="4.x",
        seed=92,
        prompt=prompt(9, vocab=83),
    ),
    GoldenCase(
        name="gemma4",
        twist="embeddings for every layer, wide ones that share caches, two sizes of heads; hidden states",
        config=gemma4_5(
            K=2,
            H=8,
            window=5,
            types=[_SLIDING, _SLIDING, _FULL, _SLIDING, _FULL],
            sizes=dict(D=36, F=44, V=89, L=5, N=4),
            final_logit_softcapping=4.0,
            hidden_size_per_layer_input=6,
            num_kv_shared_layers=2,
            per_layer_config={"2": {"head_dim": 12}, "4": {"head_dim": 12}},
            use_double_wide_mlp=True,
            vocab_size_per_layer_input=95,
        ),
        form="5.x",
        seed=93,
        prompt=prompt(11, vocab=89),
        hidden=True,
        must_matter=(
            {"sliding_window": 6},
            {"final_logit_softcapping": None},
            {"hidden_activation": "relu"},
            {"rms_norm_eps": 1e-1},
            {
                "rope_parameters": {
                    "full_attention": {"partial_rotary_factor": 1.0, "rope_theta": 400.0, "rope_type": "proportional"},
                    "sliding_attention": {"rope_theta": 50.0, "rope_type": "default"},
                }
            },
        ),
    ),
    GoldenCase(
        name="gemma4_moe",
        twist="experts beside the feed-forward; keys are values and K another without a window; hub form; batch of 2",
        config={
            key: value
            for key, value in gemma4_5(
                K=4,
                H=6,
                window=4,
                types=[_SLIDING, _FULL, _SLIDING, _FULL],
                sizes=dict(D=40, F=28, V=86, L=4, N=4),
                attention_k_eq_v=True,
                attention_bias=True,
                enable_moe_block=True,
                global_head_dim=10,
                moe_intermediate_size=18,
                num_experts=7,
                num_global_key_value_heads=2,
                top_k_experts=3,
                use_bidirectional_attention="vision",
            ).items()
            if key != "rope_parameters"
        },
        form="4.x",
        seed=93,
        prompt=prompt(8, 8, vocab=86),
        must_matter=({"top_k_experts": 2}, {"sliding_window": 5}),
    ),
    GoldenCase(
        name="gemma4_wrapped",
        twist="the decoder inside a checkpoint that could have other models, untied; one layer shares a cache",
        config=gemma4_wrapped_5(
            gemma4_5(
                K=1,
                H=6,
                window=4,
                types=[_FULL, _FULL],
                sizes=dict(D=28, F=38, V=73, L=2, N=3),
                global_head_dim=10,
                hidden_size_per_layer_input=4,
                num_kv_shared_layers=1,
                pad_token_id=0,
            )
        ),
        form="4.x",
        seed=96,
        prompt=prompt(7, vocab=73),
    ),
    GoldenCase(
        name="gemma3n",
        twist="alternating updates, LAuReL, embeddings for every layer, sparse gates, caches shared by two types",
        config=gemma3n_5(
            K=2,
            H=8,
            window=5,
            types=[_SLIDING, _FULL, _SLIDING, _SLIDING, _FULL],
            sizes=dict(D=36, F=44, V=89, L=5, N=4),
            activation_sparsity_pattern=[0.9, 0.6, 0.0, 0.0, 0.0],
            intermediate_size=[44, 44, 44, 56, 44],
            num_kv_shared_layers=2,
            vocab_size_per_layer_input=80,
        ),
        form="5.x",
        seed=97,
        prompt=prompt(11, vocab=89),
        must_matter=(
            {"sliding_window": 6},
            {"final_logit_softcapping": 5.0},
            {"activation_sparsity_pattern": [0.0] * 5},
            {"altup_correct_scale": False},
            {"altup_active_idx": 1},
            {"hidden_activation": "relu"},
            {"rms_norm_eps": 1e-1},
        ),
    ),
    GoldenCase(
        name="gemma3n_wrapped_4x",
        twist="the decoder inside a checkpoint with other models; another active copy, biases; batch of 2; 4.x form",
        config=gemma3n_4_53(
            gemma3n_5(
                K=1,
                H=6,
                window=4,
                types=[_SLIDING, _FULL, _SLIDING],
                sizes=dict(D=40, F=34, V=77, L=3, N=2),
                altup_active_idx=1,
                altup_correct_scale=False,
                altup_num_inputs=3,
                attention_bias=True,
                num_kv_shared_layers=1,
                tie_word_embeddings=False,
            )
        )
        | {"tie_word_embeddings": False},
        form="4.x",
        seed=97,
        prompt=prompt(8, 8, vocab=77),
    ),
    GoldenCase(
        name="gemma4_unified",
        twist="without experts and embeddings for every layer; keys are values without a window",
        config=gemma4_unified_5(
            K=2,
            H=6,
            window=4,
            types=[_SLIDING, _SLIDING, _FULL],
            sizes=dict(D=32, F=42, V=79, L=3, N=4),
            attention_k_eq_v=True,
            global_head_dim=10,
            num_global_key_value_heads=1,
        ),
        form="4.x",
        seed=99,
        prompt=prompt(9, vocab=79),
        must_matter=({"sliding_window": 5}, {"rms_norm_eps": 1e-1}),
    ),
    GoldenCase(
        name="gemma4_unified_wrapped",
        twist="the same inside a checkpoint that could have other models",
        config=gemma4_wrapped_5(
            gemma4_unified_5(
                K=1,
                H=6,
                window=4,
                types=[_SLIDING, _FULL],
                sizes=dict(D=28, F=38, V=73, L=2, N=3),
                global_head_dim=10,
                pad_token_id=0,
            ),
            "Gemma4Unified",
            "gemma4_unified",
        ),
        form="4.x",
        seed=99,
        prompt=prompt(7, vocab=73),
    ),
)
