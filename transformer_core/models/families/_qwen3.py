"""Qwen3: a Llama with normed queries and keys, and windows in some layers."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, windows_of_layers
from transformer_core.family._layer import DecoderLayer


def _read(fields: ConfigFields) -> DecoderConfig:
    biased = fields.boolean("attention_bias", False)
    heads, kv_heads, head_size = heads_of(fields, head_dim_needed=True)
    return llama_kind(
        fields,
        QWEN3.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        windows=windows_of_layers(fields),
    )


QWEN3: Final = Family("Qwen3ForCausalLM", "qwen3", _read, DecoderLayer)
