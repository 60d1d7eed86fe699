"""Gemma 3n and Gemma 4, with layers that differ in sizes and share caches."""

from statistics import NormalDist
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.models.gguf.readers._architecture import AFTER_PARTS, GgufArchitecture
from transformer_core.models.gguf.readers._common import WINDOW, Source, Values, common, layer_types, with_fields
from transformer_core.models.gguf.readers._metadata_fields import vector

_SHARED: Final = "attention.shared_kv_layers"
_INNER: Final = "feed_forward_length"
_KV_HEADS: Final = "attention.head_count_kv"
_DIVISORS: Final = "rope_freqs.weight"
_NOT_TURNED: Final = 1e29  # the converter's divisor of pairs that RoPE does not turn is 1e30


def _by_layer(fields: ConfigFields, name: str) -> list[int]:
    """Reads an integer for each layer, or one for all."""
    layers, values = fields.integer("block_count"), fields.values.get(name)
    if not isinstance(values, list):
        return [fields.integer(name)] * layers
    if len(values) != layers or any(type(value) is not int or value < 1 for value in values):
        fields.refuse(name, f"an integer of at least 1, or {layers} (block_count) of them")
    return values


def _common(source: Source, architecture: str, model_type: str, original: Source) -> Values:
    """Returns the fields that both have."""
    fields, file = original.fields, original.file
    size = fields.integer("embedding_length_per_layer_input", 0, minimum=0)
    table: Values = {"vocab_size_per_layer_input": file.spec("per_layer_token_embd.weight").shape[0]} if size else {}
    return common(
        source,
        architecture,
        model_type,
        hidden_activation="gelu_pytorch_tanh",
        sliding_window=fields.integer(WINDOW),
        final_logit_softcapping=fields.number("final_logit_softcapping")
        if fields.has("final_logit_softcapping")
        else None,
        num_kv_shared_layers=fields.integer(_SHARED, 0, minimum=0),
        hidden_size_per_layer_input=size,
        **table,
    )


def _gemma3n(source: Source) -> Values:
    fields, inners = source.fields, _by_layer(source.fields, _INNER)
    values = _common(with_fields(source, feed_forward_length=inners[0]), "Gemma3nForCausalLM", "gemma3n_text", source)
    scales = fields.values.get("activation_sparsity_scale")
    if not isinstance(scales, list) or len(scales) != len(inners):
        fields.refuse("activation_sparsity_scale", f"{len(inners)} (block_count) numbers")
    return {
        **values,
        **layer_types(fields, 5),
        "intermediate_size": inners,
        "rope_local_base_freq": fields.number("rope.freq_base_swa", 10000.0, above=1.0),
        "activation_sparsity_pattern": [round(NormalDist().cdf(scale), 6) for scale in scales],
        "altup_active_idx": fields.integer("altup.active_idx", minimum=0),
        "altup_num_inputs": fields.integer("altup.num_inputs"),
        "laurel_rank": source.file.spec("blk.0.laurel_l.weight").shape[0],
    }


def _gemma4(source: Source) -> Values:
    fields, inners, kv_heads = source.fields, _by_layer(source.fields, _INNER), _by_layer(source.fields, _KV_HEADS)
    types = layer_types(fields, 6)["layer_types"]
    full = [index for index, kind in enumerate(types) if kind == "full_attention"]
    with_window = next((index for index in range(len(types)) if index not in full), 0)
    size, large = fields.integer("attention.key_length_swa"), fields.integer("attention.key_length")
    uniform = with_fields(
        source,
        feed_forward_length=inners[0],
        attention__head_count_kv=kv_heads[with_window],
        attention__key_length=size,
        attention__value_length=fields.integer("attention.value_length_swa", size),
        rope__dimension_count=fields.integer("rope.dimension_count_swa", size),
    )
    values = _common(uniform, "Gemma4ForCausalLM", "gemma4_text", source)
    values["rope_parameters"] = {
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": values.pop("rope_theta"),
            "partial_rotary_factor": _turned_share(source, large),
        },
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": fields.number("rope.freq_base_swa", 10000.0, above=1.0),
        },
    }
    values.pop("rope_scaling", None)
    own = [index for index in full if index < len(types) - values["num_kv_shared_layers"]]
    return {
        **values,
        **_experts(fields),
        "layer_types": types,
        "use_double_wide_mlp": _is_wide(fields, inners, values["num_kv_shared_layers"]),
        "per_layer_config": {str(index): {"head_dim": large, "num_key_value_heads": kv_heads[index]} for index in full},
        "attention_k_eq_v": any(not source.file.has(f"blk.{index}.attn_v.weight") for index in own),
    }


def _turned_share(source: Source, head_size: int) -> float:
    """Returns the share of a head's pairs that RoPE turns, in layers without a window."""
    if not source.file.has(_DIVISORS):
        return 1.0
    divisors = vector(source.file, _DIVISORS)
    turned = sum(divisor < _NOT_TURNED for divisor in divisors)
    if len(divisors) != head_size // 2 or any(divisor != 1 for divisor in divisors[:turned]):
        source.fields.refuse("attention.key_length", f"half of it ones and then 1e30 in {_DIVISORS}")
    return turned / len(divisors)


def _is_wide(fields: ConfigFields, inners: list[int], shared: int) -> bool:
    """Returns whether layers that share caches have a feed-forward of twice the size."""
    first = len(inners) - shared
    wide = shared > 0 and inners[-1] == 2 * inners[0]
    if inners != [*[inners[0]] * first, *[inners[0] * (2 if wide else 1)] * shared]:
        fields.refuse(_INNER, f"one size, or twice as much in the last {shared} layers ({_SHARED})")
    return wide


def _experts(fields: ConfigFields) -> Values:
    if not fields.has("expert_count") or fields.values["expert_count"] == 0:
        return {}
    return {
        "enable_moe_block": True,
        "num_experts": fields.integer("expert_count"),
        "top_k_experts": fields.integer("expert_used_count"),
        "moe_intermediate_size": fields.integer("expert_feed_forward_length"),
    }


_EMBEDDINGS: Final = {
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
_ALTUP: Final = {
    "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm",
}
_BESIDE: Final = {
    "router.proj": "ffn_gate_inp",
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
}
_READS: Final = frozenset({"final_logit_softcapping", WINDOW, _SHARED})

GEMMA_LAYERS: Final = (
    GgufArchitecture(
        "gemma3n",
        _gemma3n,
        _READS,
        names={**AFTER_PARTS, **_EMBEDDINGS, **_ALTUP},
        tensors={"altup.correct_output_scale": "altup_correct_scale.weight"},
    ),
    GgufArchitecture(
        "gemma4",
        _gemma4,
        _READS | {"expert_count"},
        names={**AFTER_PARTS, **_EMBEDDINGS, **_BESIDE},
        tensors={
            "layer_scalar": "layer_output_scale.weight",
            "router.scale": "ffn_gate_inp.scale",
            "router.per_expert_scale": "ffn_down_exps.scale",
        },
        forms=frozenset({"ffn_gate_up_exps"}),
    ),
)
