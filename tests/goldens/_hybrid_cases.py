"""The cases with several kinds of layers: Qwen3-Next."""

from tests.goldens._case_types import GoldenCase
from tests.goldens._hybrid_forms import qwen3_next5, qwen3_next_4_57
from tests.goldens._prompts import prompt

QWEN3_NEXT_CASES = (
    GoldenCase(
        name="qwen3_next",
        twist="3 Gated DeltaNets to 1 gated attention, partial RoPE, experts with a gated shared one; hidden states",
        config=qwen3_next5(
            K=2,
            H=16,
            E=5,
            C=2,
            linear=(2, 6, 8, 5, 4),
            sizes=dict(D=40, F=52, V=93, L=4, N=4),
            moe_intermediate_size=14,
            shared_expert_intermediate_size=18,
        ),
        form="5.x",
        seed=80,
        prompt=prompt(37, vocab=93),
        hidden=True,
        must_matter=(
            {"norm_topk_prob": False},
            {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 1e4, "rope_type": "default"}},
        ),
    ),
    GoldenCase(
        name="qwen3_next_mixed_4x",
        twist="every other layer has attention, one is dense; as many key as value heads; batch of 2, tied, bf16 file",
        config=qwen3_next_4_57(
            K=1,
            H=8,
            E=6,
            C=3,
            linear=(3, 3, 6, 8, 3),
            sizes=dict(D=32, F=58, V=85, L=3, N=2),
            attention_bias=True,
            full_attention_interval=2,
            mlp_only_layers=[2],
            moe_intermediate_size=20,
            norm_topk_prob=False,
            partial_rotary_factor=0.5,
            shared_expert_intermediate_size=12,
            tie_word_embeddings=True,
        ),
        form="4.x",
        seed=81,
        prompt=prompt(9, 9, vocab=85),
        stored="bf16",
        must_matter=({"partial_rotary_factor": 0.25}, {"norm_topk_prob": True}),
    ),
)
