"""Qwen3-Next and Qwen3.5: layers with a Gated DeltaNet beside layers with attention."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.models.gguf.readers._architecture import GgufArchitecture
from transformer_core.models.gguf.readers._common import Source, Values, common, with_fields

_NEXTN: Final = "nextn_predict_layers"
_RECURRENT: Final = "attention.recurrent_layers"


def _qwen3_next(source: Source) -> Values:
    return _hybrid(source, "Qwen3NextForCausalLM", "qwen3_next", tiled=False, **_experts(source.fields))


def _qwen3_5(source: Source) -> Values:
    return _hybrid(source, "Qwen3_5ForCausalLM", "qwen3_5_text", tiled=True)


def _qwen3_5_moe(source: Source) -> Values:
    return _hybrid(source, "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", tiled=True, **_experts(source.fields))


def _hybrid(source: Source, architecture: str, model_type: str, *, tiled: bool, **more: Any) -> Values:
    fields = source.fields
    heads = fields.integer("ssm.time_step_rank")
    if fields.integer("ssm.inner_size") % heads:
        fields.refuse("ssm.inner_size", f"a multiple of ssm.time_step_rank ({heads})")
    further = fields.integer(_NEXTN, 0, minimum=0)
    layers = fields.integer("block_count") - further
    if layers < 1:
        fields.refuse(_NEXTN, "fewer layers than block_count")
    changed = {"block_count": layers}
    if "moe_intermediate_size" in more and "feed_forward_length" not in fields.values:
        changed["feed_forward_length"] = more["moe_intermediate_size"]
    head_size = fields.integer("attention.key_length")
    return common(
        with_fields(source, **changed),
        architecture,
        model_type,
        attention_bias=any(source.file.has(f"blk.{index}.attn_q.bias") for index in range(layers)),
        partial_rotary_factor=fields.integer("rope.dimension_count", head_size) / head_size,
        layer_types=_layer_types(fields, layers),
        linear_conv_kernel_dim=fields.integer("ssm.conv_kernel"),
        linear_key_head_dim=fields.integer("ssm.state_size"),
        linear_num_key_heads=fields.integer("ssm.group_count"),
        linear_num_value_heads=heads,
        linear_value_head_dim=fields.integer("ssm.inner_size") // heads,
        **({"linear_value_head_order": "tiled"} if tiled and fields.integer("ssm.group_count") != heads else {}),
        mtp_num_hidden_layers=further,
        num_nextn_predict_layers=further,
        **more,
    )


def _layer_types(fields: ConfigFields, layers: int) -> list[str]:
    states = fields.values.get(_RECURRENT)
    if states is None:
        every = fields.integer("full_attention_interval", 4)
        states = [bool((index + 1) % every) for index in range(layers)]
    if not isinstance(states, list) or len(states) < layers or not all(isinstance(state, bool) for state in states):
        fields.refuse(_RECURRENT, f"{layers} of true and false, one for each layer")
    return ["linear_attention" if state else "full_attention" for state in states[:layers]]


def _experts(fields: ConfigFields) -> Values:
    inner = fields.integer("expert_feed_forward_length")
    return {
        "moe_intermediate_size": inner,
        "shared_expert_intermediate_size": fields.integer("expert_shared_feed_forward_length", inner),
        "num_experts": fields.integer("expert_count"),
        "num_experts_per_tok": fields.integer("expert_used_count"),
        "norm_topk_prob": fields.boolean("expert_weights_norm", True),  # llama.cpp always does
    }


_NAMES: Final = {
    "post_attention_layernorm": "post_attention_norm",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
_READS: Final = frozenset({_NEXTN})
_READS_EXPERTS: Final = frozenset({_NEXTN, "expert_count"})

QWEN_HYBRIDS: Final = (
    GgufArchitecture("qwen3next", _qwen3_next, _READS_EXPERTS, names=_NAMES),
    GgufArchitecture("qwen35", _qwen3_5, _READS, names=_NAMES),
    GgufArchitecture("qwen35moe", _qwen3_5_moe, _READS_EXPERTS, names=_NAMES),
)
