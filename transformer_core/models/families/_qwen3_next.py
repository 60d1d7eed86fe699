"""Qwen3-Next: three layers with a Gated DeltaNet per layer with gated attention, and mixtures of experts."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, kinds_of_layers, llama_kind
from transformer_core.family._layer import hybrid_layer
from transformer_core.family._layer_configs import DeltaConfig
from transformer_core.layers._gated_delta_net import HeadOrder
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.models.families._qwen3_moe import qwen_experts

_LINEAR: Final = "linear_attention"
_ORDERS: Final = tuple(order.value for order in HeadOrder)
_ROTATED_SHARE: Final = 0.25  # transformers' default


def _read(fields: ConfigFields) -> DecoderConfig:
    experts = qwen_experts(fields, normalized=True, shared="shared_expert_intermediate_size")
    return hybrid_kind(fields, QWEN3_NEXT.architecture, grouped=True, experts=experts)


def hybrid_kind(fields: ConfigFields, architecture: str, *, grouped: bool, **known: Any) -> DecoderConfig:
    """Reads the configuration of a decoder that differs from a Qwen3-Next in the ``known`` attributes only.

    Args:
        fields: fields of config.json.
        architecture: architecture of the family.
        grouped: whether a Gated DeltaNet has one projection for q, k, v and z.
        **known: attributes of ``DecoderConfig`` that the family reads itself.

    Raises:
        ConfigError: a field is missing, of the wrong type, out of range, or contradicts another.
    """
    fields.choice("hidden_act", ("silu", "swish"), "silu")  # of the convolution too
    biased = fields.boolean("attention_bias", False)
    heads, kv_heads, head_size = heads_of(fields, head_dim_needed=True)
    return llama_kind(
        fields,
        architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(fields, head_size, default_share=_ROTATED_SHARE),
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        gated=True,
        zero_centred=True,
        extra_layers=fields.integer("num_nextn_predict_layers", 0, minimum=0),  # of GGUF files
        prediction_heads=fields.integer("mtp_num_hidden_layers", 1, minimum=0),
        mixer=DeltaConfig(
            layers=tuple(kind == _LINEAR for kind in _kinds(fields)),
            key_heads=fields.integer("linear_num_key_heads"),
            value_heads=fields.integer("linear_num_value_heads"),
            key_size=fields.integer("linear_key_head_dim"),
            value_size=fields.integer("linear_value_head_dim"),
            taps=fields.integer("linear_conv_kernel_dim"),
            grouped=grouped,
            order=HeadOrder(fields.choice("linear_value_head_order", _ORDERS, "consecutive")),  # of GGUF files
        ),
        **known,
    )


def _kinds(fields: ConfigFields) -> list[str]:
    """Reads the kind of each layer: listed, or attention in every ``full_attention_interval``-th (4th)."""
    interval, full = fields.integer("full_attention_interval", 4), "full_attention"
    default = [_LINEAR if (i + 1) % interval else full for i in range(fields.integer("num_hidden_layers"))]
    return kinds_of_layers(fields, (_LINEAR, full), default)


QWEN3_NEXT: Final = Family("Qwen3NextForCausalLM", "qwen3_next", _read, hybrid_layer, lambda config: ExpertKeys())
