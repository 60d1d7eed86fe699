"""Llama 1 to 3, TinyLlama."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer


def _read(fields: ConfigFields) -> DecoderConfig:
    biased = fields.boolean("attention_bias", False)
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    return llama_kind(
        fields,
        LLAMA.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=fields.boolean("mlp_bias", False),
        windows=(None,) * fields.integer("num_hidden_layers"),  # transformers' Llama ignores sliding_window
    )


LLAMA: Final = Family("LlamaForCausalLM", "llama", _read, DecoderLayer)
