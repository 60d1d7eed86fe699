"""Spaces of Gemma 3n and Gemma 4: shared caches, embeddings for every layer, sizes by layer."""

import random
from typing import Any, Final

from tests.goldens._case_types import Config
from tests.goldens._drawn_space_types import ABSENT, Space, decoder_space, divisor_of, per_layer, up_to

_FULL, _SLIDING = "full_attention", "sliding_attention"


def _two_ropes(default: list[Any]) -> Any:
    def parameters(config: Config, rng: random.Random) -> Any:
        if rng.random() < 0.25:
            return ABSENT
        theta = rng.choice([300.0, 1e6])
        scaled = {"rope_type": "linear", "rope_theta": theta, "factor": rng.choice([2.0, 8.0])}
        plain = {"rope_type": "default", "rope_theta": theta}
        return {
            _FULL: rng.choice([scaled, plain, *({**kind, "rope_theta": theta} for kind in default)]),
            _SLIDING: {"rope_type": "default", "rope_theta": rng.choice([10.0, 10000.0])},
        }

    return parameters


def _shared(config: Config, rng: random.Random) -> int:
    """Draws the number of last layers that share caches; often one that the types of the layers allow."""
    return rng.choice([0, 0, 1, 2, rng.randint(0, config["num_hidden_layers"])])


def _inners(config: Config, rng: random.Random) -> Any:
    return rng.choice([28, [rng.choice([28, 44]) for _ in range(config["num_hidden_layers"])]])


def _sparsities(config: Config, rng: random.Random) -> Any:
    return rng.choice([ABSENT, [rng.choice([0.0, 0.3, 0.9]) for _ in range(config["num_hidden_layers"])]])


def _overrides(config: Config, rng: random.Random) -> Any:
    """Draws sizes of layers without a window, as transformers 5 writes them; ``global_head_dim`` counts without."""
    types = config.get("layer_types")
    if types is None or rng.random() < 0.5:
        return ABSENT
    kv_heads = rng.choice([size for size in (1, 2, 3) if config["num_attention_heads"] % size == 0])
    own = rng.choice([{"head_dim": 12}, {"num_key_value_heads": kv_heads}, {"head_dim": 4, "num_key_value_heads": 1}])
    full = [index for index, kind in enumerate(types) if kind == _FULL or index == len(types) - 1]
    return {str(index): own for index in full}


_PROPORTIONAL: Final = [
    {"rope_type": "proportional", "partial_rotary_factor": share, **more}
    for share, more in ((0.25, {}), (0.5, {"factor": 2.0}), (1.0, {}))
]
_COMMON: Final[dict[str, Any]] = {
    "num_hidden_layers": [1, 2, 3, 4, 5, 6],
    "hidden_act": [ABSENT],
    "hidden_activation": ["gelu_pytorch_tanh", "silu", "gelu", "relu", ABSENT],
    "attention_bias": [True, False, ABSENT],
    "layer_types": per_layer(_FULL, _SLIDING),
    "sliding_window": [3, 5, ABSENT],
    "final_logit_softcapping": [4.0, ABSENT],
    "pad_token_id": [0],
}
SPACES: Final[dict[str, Space]] = {
    "Gemma3nForCausalLM": decoder_space(
        "gemma3n_text",
        "Gemma3nForCausalLM",
        **_COMMON,
        rope_parameters=_two_ropes([]),
        intermediate_size=_inners,
        num_kv_shared_layers=_shared,
        activation_sparsity_pattern=_sparsities,
        altup_active_idx=[0, 1, ABSENT],
        altup_correct_scale=[True, False, ABSENT],
        altup_coef_clip=[0.5, ABSENT],
        altup_num_inputs=[2, 3, ABSENT],
        hidden_size_per_layer_input=[4, 6],
        laurel_rank=[3, 5],
        vocab_size_per_layer_input=[50, 93],
    ),
    "Gemma4ForCausalLM": decoder_space(
        "gemma4_text",
        "Gemma4ForCausalLM",
        **_COMMON,
        rope_parameters=_two_ropes(_PROPORTIONAL),
        num_kv_shared_layers=_shared,
        per_layer_config=_overrides,
        global_head_dim=[8, 12, 20],
        attention_k_eq_v=[True, False, ABSENT],
        num_global_key_value_heads=divisor_of("num_attention_heads"),
        hidden_size_per_layer_input=[0, 4, 6],
        vocab_size_per_layer_input=[93, 99],
        use_double_wide_mlp=[True, False, ABSENT],
        use_bidirectional_attention=["vision", None, ABSENT],
        enable_moe_block=[True, False, False, ABSENT],
        num_experts=[3, 5],
        top_k_experts=up_to("num_experts"),
        moe_intermediate_size=[14, 18],
    ),
    "Gemma4UnifiedForCausalLM": decoder_space(
        "gemma4_unified_text",
        "Gemma4UnifiedForCausalLM",
        **_COMMON,
        rope_parameters=_two_ropes(_PROPORTIONAL),
        num_kv_shared_layers=_shared,
        per_layer_config=_overrides,
        global_head_dim=[8, 12, 20],
        attention_k_eq_v=[True, False, ABSENT],
        num_global_key_value_heads=divisor_of("num_attention_heads"),
        use_double_wide_mlp=[True, False, ABSENT],
        use_bidirectional_attention=["vision", None, ABSENT],
    ),
}
