"""Further mixtures of experts: GLM-4.5, Qwen2-MoE, MiniMax-M2, ERNIE 4.5, Phi-3.5-MoE, Llama 4, OLMoE, dots.llm1."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.models.gguf.readers._architecture import GgufArchitecture
from transformer_core.models.gguf.readers._common import (
    WINDOW,
    Source,
    Values,
    biased,
    common,
    rotated_share,
    window,
    with_fields,
)

_SIGMOID: Final = 2  # llama.cpp's number of the function that makes scores of a router's logits
_LAYERS: Final = "block_count"
_INNER: Final = "feed_forward_length"


def _check_scoring(fields: ConfigFields) -> None:
    if fields.integer("expert_gating_func", _SIGMOID, minimum=0) not in (0, _SIGMOID):
        fields.refuse("expert_gating_func", f"{_SIGMOID}, the logistic function")


def _glm4_moe(source: Source) -> Values:
    """Returns the fields of GLM-4.5; ``block_count`` has the layers that predict further tokens, which are not run."""
    fields = source.fields
    _check_scoring(fields)
    further = fields.integer("nextn_predict_layers", 0, minimum=0)
    layers = fields.integer(_LAYERS)
    if layers <= further:
        fields.refuse("nextn_predict_layers", f"less than {_LAYERS} ({layers})")
    return common(
        with_fields(source, block_count=layers - further),
        "Glm4MoeForCausalLM",
        "glm4_moe",
        attention_bias=biased(source, "attn_q"),
        use_qk_norm=source.file.has("blk.0.attn_q_norm.weight"),
        first_k_dense_replace=fields.integer("leading_dense_block_count", 0, minimum=0),
        moe_intermediate_size=fields.integer("expert_feed_forward_length"),
        n_group=fields.integer("expert_group_count", 1),
        n_routed_experts=fields.integer("expert_count"),
        n_shared_experts=fields.integer("expert_shared_count", 0, minimum=0),
        norm_topk_prob=fields.boolean("expert_weights_norm", False),
        num_experts_per_tok=fields.integer("expert_used_count"),
        num_nextn_predict_layers=further,
        partial_rotary_factor=rotated_share(source),
        routed_scaling_factor=fields.number("expert_weights_scale", 1.0),
        topk_group=fields.integer("expert_group_used_count", 1),
    )


def _qwen2_moe(source: Source) -> Values:
    fields = source.fields
    inner = fields.integer("expert_feed_forward_length")
    return common(
        with_fields(source, feed_forward_length=fields.integer(_INNER, inner)),
        "Qwen2MoeForCausalLM",
        "qwen2_moe",
        qkv_bias=biased(source, "attn_q"),
        use_sliding_window=False,
        moe_intermediate_size=inner,
        shared_expert_intermediate_size=fields.integer("expert_shared_feed_forward_length", inner),
        num_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
        norm_topk_prob=fields.boolean("expert_weights_norm", False),  # llama.cpp never does
        decoder_sparse_step=1,
        mlp_only_layers=[],
    )


def _minimax_m2(source: Source) -> Values:
    fields = source.fields
    _check_scoring(fields)
    return common(
        with_fields(source, feed_forward_length=fields.integer("expert_feed_forward_length")),
        "MiniMaxM2ForCausalLM",
        "minimax_m2",
        num_local_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
    )


def _ernie4_5_moe(source: Source) -> Values:
    fields = source.fields
    return common(
        source,
        "Ernie4_5_MoeForCausalLM",
        "ernie4_5_moe",
        use_bias=biased(source, "attn_q"),
        moe_intermediate_size=fields.integer("expert_feed_forward_length"),
        moe_k=fields.integer("expert_used_count"),
        moe_layer_interval=fields.integer("interleave_moe_layer_step", 1),
        moe_layer_start_index=fields.integer("leading_dense_block_count", 0, minimum=0),
        moe_num_experts=fields.integer("expert_count"),
        moe_num_shared_experts=fields.integer("expert_shared_count", 0, minimum=0),
    )


def _phimoe(source: Source) -> Values:
    """Returns the fields of Phi-3.5-MoE; files lack its router's tolerance, which has one known value."""
    fields = source.fields
    values = common(
        source,
        "PhimoeForCausalLM",
        "phimoe",
        attention_bias=biased(source, "attn_q"),
        lm_head_bias=source.file.has("output.bias"),
        num_local_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
        sliding_window=window(fields),
    )
    if "rope_scaling" in values:
        scale = values["rope_scaling"].get("attention_factor", 1.0)
        values["rope_scaling"] |= {"short_mscale": scale, "long_mscale": scale}
    return values


def _olmoe(source: Source) -> Values:
    fields = source.fields
    return common(
        with_fields(source, feed_forward_length=fields.integer("expert_feed_forward_length", fields.integer(_INNER))),
        "OlmoeForCausalLM",
        "olmoe",
        attention_bias=biased(source, "attn_q"),
        num_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
        norm_topk_prob=False,  # llama.cpp never does
    )


def _dots1(source: Source) -> Values:
    fields = source.fields
    _check_scoring(fields)
    return common(
        source,
        "Dots1ForCausalLM",
        "dots1",
        attention_bias=biased(source, "attn_q"),
        first_k_dense_replace=fields.integer("leading_dense_block_count", 0, minimum=0),
        moe_intermediate_size=fields.integer("expert_feed_forward_length"),
        n_routed_experts=fields.integer("expert_count"),
        n_shared_experts=fields.integer("expert_shared_count", 0, minimum=0),
        norm_topk_prob=fields.boolean("expert_weights_norm", False),
        num_experts_per_tok=fields.integer("expert_used_count"),
        routed_scaling_factor=fields.number("expert_weights_scale", 1.0),
        sliding_window=None,
    )


_TURNS: Final = 4  # what llama.cpp has fixed: every fourth layer without RoPE, chunks, norms in all but the largest
_LARGEST: Final = 128


def _llama4(source: Source) -> Values:
    fields = source.fields
    layers, whole = fields.integer(_LAYERS), fields.values.get(WINDOW) == 0
    experts = fields.integer("expert_count")
    types: Values = {"layer_types": ["full_attention"] * layers} if whole else {}
    return common(
        with_fields(source, feed_forward_length=fields.integer("expert_feed_forward_length")),
        "Llama4ForCausalLM",
        "llama4_text",
        attention_bias=biased(source, "attn_q"),
        interleave_moe_layer_step=fields.integer("interleave_moe_layer_step"),
        intermediate_size_mlp=fields.integer(_INNER),
        no_rope_layer_interval=layers + 1 if whole else _TURNS,
        num_local_experts=experts,
        num_experts_per_tok=fields.integer("expert_used_count"),
        use_qk_norm=experts != _LARGEST,
        **types,
    )


_COUNT: Final = frozenset({"expert_count"})
_SHARED: Final = _COUNT | {"expert_shared_count", "leading_dense_block_count"}
_GLM: Final = _SHARED | {"expert_group_count", "expert_weights_scale", "nextn_predict_layers"}
_GATED_SHARED: Final = {
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}

SPARSE: Final = (
    GgufArchitecture("glm4moe", _glm4_moe, _GLM, names={"post_attention_layernorm": "post_attention_norm"}),
    GgufArchitecture("qwen2moe", _qwen2_moe, _COUNT, names=_GATED_SHARED),
    GgufArchitecture("minimax-m2", _minimax_m2, _COUNT),
    GgufArchitecture("ernie4_5-moe", _ernie4_5_moe, _SHARED),
    GgufArchitecture("phimoe", _phimoe, _COUNT | {WINDOW}),
    GgufArchitecture("olmoe", _olmoe, _COUNT),
    GgufArchitecture("dots1", _dots1, _SHARED | {"expert_weights_scale"}),
    GgufArchitecture("llama4", _llama4, _COUNT | {WINDOW}),
)
