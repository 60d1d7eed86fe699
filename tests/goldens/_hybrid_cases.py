"""Cases with several kinds of layers, and their ``config.json`` dictionaries; ``_config_forms`` has the names.

E is the number of experts, C how many a token chooses.
"""

from typing import Any

from tests.goldens._case_types import Config, GoldenCase, prompt
from tests.goldens._config_forms import common5, qwen2_4_40

LINEAR, _FULL = "linear_attention", "full_attention"
_EXPERTS = {
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
}


def linear_sizes(keys: int, values: int, key: int, value: int, taps: int) -> Config:
    """Returns the sizes of Gated DeltaNets: key heads, value heads, their sizes, and the taps."""
    return {
        "linear_num_key_heads": keys,
        "linear_num_value_heads": values,
        "linear_key_head_dim": key,
        "linear_value_head_dim": value,
        "linear_conv_kernel_dim": taps,
    }


def qwen3_next5(
    *, K: int, H: int, E: int, C: int, linear: tuple[int, int, int, int, int], sizes: Config, **changes: Any
) -> Config:
    """``Qwen3NextConfig`` of transformers 5; ``linear`` is key heads, value heads, their sizes, and the taps."""
    return {
        **common5("qwen3_next", "Qwen3NextForCausalLM", K, sizes),
        **_EXPERTS,
        **linear_sizes(*linear),
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "head_dim": H,
        "layer_types": [LINEAR if (layer + 1) % 4 else _FULL for layer in range(sizes["L"])],
        "num_experts": E,
        "num_experts_per_tok": C,
        "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000.0, "rope_type": "default"},
        **changes,
    }


def qwen3_next_4_57(
    *, K: int, H: int, E: int, C: int, linear: tuple[int, int, int, int, int], sizes: Config, **changes: Any
) -> Config:
    """Qwen/Qwen3-Next-80B-A3B-Instruct: ``full_attention_interval`` in place of ``layer_types``."""
    form = qwen2_4_40(
        K=K,
        sizes=sizes,
        **{
            **_EXPERTS,
            **linear_sizes(*linear),
            "architectures": ["Qwen3NextForCausalLM"],
            "full_attention_interval": 4,
            "head_dim": H,
            "model_type": "qwen3_next",
            "num_experts": E,
            "num_experts_per_tok": C,
            "partial_rotary_factor": 0.25,
            "rope_scaling": None,
            "rope_theta": 10000000,
            "transformers_version": "4.57.0.dev0",
            **changes,
        },
    )
    return {name: value for name, value in form.items() if name not in ("max_window_layers", "sliding_window")}


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
