"""CWM (arXiv:2510.02387): a Llama with windows in three of four layers."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind, windows_by_type
from transformer_core.family._layer import DecoderLayer

_WINDOW: Final = 8192  # transformers' default


def with_default_rope(fields: ConfigFields, **rope: Any) -> ConfigFields:
    """Returns the fields with a RoPE scaled as Llama 3's, if they say no more of it than its base, which is lost."""
    if any(fields.has(name) for name in ("rope_parameters", "rope_scaling")):
        return fields
    scaled = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **rope}
    return ConfigFields({**fields.values, "rope_parameters": scaled}, fields.where)


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = with_default_rope(fields, rope_theta=1e6, factor=16.0, original_max_position_embeddings=8192)
    layers = fields.integer("num_hidden_layers")
    types = ["sliding_attention" if index % 4 else "full_attention" for index in range(layers)]
    return llama_kind(
        fields,
        CWM.architecture,
        mlp_bias=fields.boolean("mlp_bias", False),
        windows=windows_by_type(fields, types, default_window=_WINDOW),
    )


CWM: Final = Family("CwmForCausalLM", "cwm", _read, DecoderLayer)
