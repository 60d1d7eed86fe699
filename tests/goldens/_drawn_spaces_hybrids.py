"""Spaces of Qwen3-Next and Qwen3.5: Gated DeltaNets beside attention."""

import random
from typing import Any, Final

from tests.goldens._case_types import Config
from tests.goldens._drawn_space_types import ABSENT, Space, decoder_space, up_to

_EXPERTS: Final[dict[str, Any]] = {
    "moe_intermediate_size": [18, 26],
    "shared_expert_intermediate_size": [10, 22],
    "num_experts": [3, 5, 8],
    "num_experts_per_tok": up_to("num_experts"),
}


def _heads(config: Config, rng: random.Random) -> int:
    """Draws the number of value heads, a multiple of that of key heads."""
    return config["linear_num_key_heads"] * rng.choice([1, 2, 3])


def _kinds(config: Config, rng: random.Random) -> Any:
    """Draws a kind for each layer, or lets the interval decide; one has attention, which transformers' caches want."""
    layers, interval = config["num_hidden_layers"], config.get("full_attention_interval", 4)
    if layers >= interval and rng.random() < 1 / 3:
        return ABSENT
    kinds = [rng.choice(("full_attention", "linear_attention")) for _ in range(layers)]
    kinds[rng.randrange(layers)] = "full_attention"
    return kinds


def _partial_rope(config: Config, rng: random.Random) -> Any:
    """Draws RoPE of a quarter, half or all of a head, with sections that text does not see."""
    rope = {"rope_type": "default", "rope_theta": rng.choice([100.0, 1e4, 1e7])}
    if rng.random() < 0.5:
        rope["partial_rotary_factor"] = rng.choice([0.25, 0.5, 1.0])
    if rng.random() < 0.3:
        rope |= {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    if config["model_type"] != "qwen3_next" and rng.random() < 0.5:
        rope |= {"mrope_section": [1, 1, 0], "mrope_interleaved": True}
    return rope


def _hybrid(model_type: str, architecture: str, **fields: Any) -> Space:
    known: dict[str, Any] = {
        "head_dim": [8, 16],
        "hidden_act": ["silu", "silu", "silu", "silu", "gelu", ABSENT],
        "rope_parameters": _partial_rope,
        "attention_bias": [True, False, ABSENT],
        "full_attention_interval": [2, 3, ABSENT],
        "layer_types": _kinds,
        "linear_num_key_heads": [1, 2, 3],
        "linear_num_value_heads": _heads,
        "linear_key_head_dim": [4, 7, 8],
        "linear_value_head_dim": [5, 8],
        "linear_conv_kernel_dim": [2, 3, 4],
    }
    return decoder_space(model_type, architecture, **{**known, **fields})


SPACES: Final[dict[str, Space]] = {
    "Qwen3NextForCausalLM": _hybrid(
        "qwen3_next",
        "Qwen3NextForCausalLM",
        **_EXPERTS,
        norm_topk_prob=[True, False, ABSENT],
        decoder_sparse_step=[1, 2, ABSENT],
        mlp_only_layers=[[], [0], [1], ABSENT],
    ),
    "Qwen3_5ForCausalLM": _hybrid("qwen3_5_text", "Qwen3_5ForCausalLM"),
    "Qwen3_5MoeForCausalLM": _hybrid(
        "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", **_EXPERTS, intermediate_size=[ABSENT]
    ),
}
