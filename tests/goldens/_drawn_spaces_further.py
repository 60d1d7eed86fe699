"""Spaces of further families of Llama's kind, dense and with experts."""

from typing import Any, Final

from tests.goldens._drawn_space_types import ABSENT, Space, decoder_space, per_layer, up_to

_FLAGS: Final = [True, False, ABSENT]
_WHOLE_HEADS: Final[dict[str, Any]] = {"head_dim": [ABSENT]}
_TYPES: Final = per_layer("full_attention", "sliding_attention")

SPACES: Final[dict[str, Space]] = {
    "OlmoForCausalLM": decoder_space(
        "olmo",
        "OlmoForCausalLM",
        **_WHOLE_HEADS,
        rms_norm_eps=[ABSENT],
        attention_bias=_FLAGS,
        clip_qkv=[0.5, 2.0, None, ABSENT],
    ),
    "OlmoeForCausalLM": decoder_space(
        "olmoe",
        "OlmoeForCausalLM",
        **_WHOLE_HEADS,
        attention_bias=_FLAGS,
        clip_qkv=[0.5, 2.0, None, ABSENT],
        num_experts=[3, 5, 8],
        num_experts_per_tok=up_to("num_experts"),
        norm_topk_prob=_FLAGS,
    ),
    "Dots1ForCausalLM": decoder_space(
        "dots1",
        "Dots1ForCausalLM",
        head_dim=[8, 12, ABSENT],
        attention_bias=_FLAGS,
        layer_types=_TYPES,
        sliding_window=[3, 5, None, ABSENT],
        max_window_layers=[0, 1, 2, ABSENT],
        first_k_dense_replace=[0, 1, 2, ABSENT],
        moe_intermediate_size=[18, 26],
        n_routed_experts=[4, 6, 8],
        n_shared_experts=[1, 2],
        n_group=[1, 2, ABSENT],
        topk_group=[1, ABSENT],
        num_experts_per_tok=[1, 2],
        norm_topk_prob=_FLAGS,
        routed_scaling_factor=[1.7, ABSENT],
    ),
    "CwmForCausalLM": decoder_space(
        "cwm", "CwmForCausalLM", mlp_bias=_FLAGS, layer_types=_TYPES, sliding_window=[3, 5, 8]
    ),
    "ApertusForCausalLM": decoder_space(
        "apertus", "ApertusForCausalLM", hidden_act=["xielu"] * 5 + [ABSENT, "silu"], attention_bias=_FLAGS
    ),
}
