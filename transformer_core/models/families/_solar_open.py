"""Solar Open (arXiv:2601.07022): GLM-4.5's experts in every layer behind a Llama's attention."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.models.families._deepseek import grouped_experts

_HEAD_SIZE: Final = 128  # transformers' default, as is the base of RoPE
_BASE: Final = 1e6


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = ConfigFields({"rope_theta": _BASE, **fields.values, "first_k_dense_replace": 0}, fields.where)
    return llama_kind(
        fields,
        SOLAR_OPEN.architecture,
        heads=fields.integer("num_attention_heads"),
        kv_heads=fields.integer("num_key_value_heads"),
        head_size=fields.integer("head_dim", _HEAD_SIZE),
        intermediate=fields.integer("moe_intermediate_size"),  # no layer is dense
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        qkv_bias=fields.boolean("attention_bias", False),
        experts=grouped_experts(fields, dense=0, scale=1.0, groups=1, chosen_groups=1),
    )


SOLAR_OPEN: Final = Family("SolarOpenForCausalLM", "solar_open", _read, DecoderLayer, lambda config: ExpertKeys())
