"""DeepSeek-V2, V3 and R1."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.models.gguf.readers._architecture import GgufArchitecture
from transformer_core.models.gguf.readers._common import Source, Values, common

# llama.cpp's numbers of the function that makes scores of a router's logits; early files have none.
_SOFTMAX, _SIGMOID = 1, 2
_LOGARITHM: Final = "rope.scaling.yarn_log_multiplier"
_WHOLE: Final = ("attention.key_length", "attention.value_length", "attention.head_count_kv", "rope.dimension_count")


def _deepseek(source: Source) -> Values:
    """Returns the fields of a DeepSeek, with attention stored as one head of compressed keys and values.

    Raises:
        ConfigError: a field is missing, of the wrong type or out of range.
    """
    fields = source.fields
    architecture, model_type, routing = _version(fields)
    rotated = fields.integer("rope.dimension_count")
    # Early files have the sizes of a head in the fields without `_mla`.
    sizes = [f"{name}_mla" if fields.has(f"{name}_mla") else name for name in _WHOLE[:2]]
    query, value = map(fields.integer, sizes)
    if query <= rotated:
        fields.refuse(sizes[0], f"more than rope.dimension_count ({rotated})")
    temperature = 10 * fields.number(_LOGARITHM, 0.0, above=-1.0)  # of both kinds: the file has one number
    plain = {key: value for key, value in fields.values.items() if key not in (*_WHOLE, _LOGARITHM)}
    plain |= {"attention.key_length": rotated, "attention.value_length": rotated}
    values = common(
        Source(source.file, ConfigFields(plain, fields.where)),
        architecture,
        model_type,
        attention_bias=False,
        kv_lora_rank=fields.integer("attention.kv_lora_rank"),
        q_lora_rank=fields.integer("attention.q_lora_rank") if fields.has("attention.q_lora_rank") else None,
        qk_nope_head_dim=query - rotated,
        qk_rope_head_dim=rotated,
        v_head_dim=value,
        **_experts(fields),
        **routing,
    )
    if temperature and "rope_scaling" in values:
        values["rope_scaling"] |= {"mscale": temperature, "mscale_all_dim": temperature}
    return values


def _version(fields: ConfigFields) -> tuple[str, str, Values]:
    """Returns architecture and model type, and the fields of the routing; the scores distinguish V2 from V3."""
    scoring = fields.integer("expert_gating_func", _SOFTMAX, minimum=0)
    if scoring not in (_SOFTMAX, _SIGMOID):
        fields.refuse(
            "expert_gating_func", f"{_SOFTMAX}, the softmax of DeepSeek-V2, or {_SIGMOID}, the logistic function of V3"
        )
    if scoring == _SIGMOID:
        return "DeepseekV3ForCausalLM", "deepseek_v3", {}
    grouped = fields.integer("expert_group_count", 1) > 1
    return "DeepseekV2ForCausalLM", "deepseek_v2", {"topk_method": "group_limited_greedy" if grouped else "greedy"}


def _experts(fields: ConfigFields) -> Values:
    return {
        "first_k_dense_replace": fields.integer("leading_dense_block_count", 0, minimum=0),
        "moe_intermediate_size": fields.integer("expert_feed_forward_length"),
        "n_group": fields.integer("expert_group_count", 1),
        "n_routed_experts": fields.integer("expert_count"),
        "n_shared_experts": fields.integer("expert_shared_count", 0, minimum=0),
        "norm_topk_prob": fields.boolean("expert_weights_norm", False),
        "num_experts_per_tok": fields.integer("expert_used_count"),
        "routed_scaling_factor": fields.number("expert_weights_scale", 1.0),
        "topk_group": fields.integer("expert_group_used_count", 1),
    }


_READS: Final = frozenset(
    {"expert_count", "expert_group_count", "expert_shared_count", "expert_weights_scale", "leading_dense_block_count"}
)

DEEPSEEK: Final = GgufArchitecture("deepseek2", _deepseek, _READS, forms=frozenset({"attn_k_b"}))
