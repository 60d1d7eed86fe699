"""Helium: a Llama with interleaved RoPE."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, whole_rope
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._rope_config import RopeMode

_ROPE_BASE: Final = 1e5  # transformers' default


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, head_dim_needed=True)
    if heads * head_size != fields.integer("hidden_size"):
        fields.refuse("head_dim", "hidden_size / num_attention_heads, as its output projection is square")
    rope = whole_rope(fields, HELIUM.architecture, head_size, default_base=_ROPE_BASE)
    return llama_kind(
        fields,
        HELIUM.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=replace(rope, mode=RopeMode.INTERLEAVED),
        qkv_bias=fields.boolean("attention_bias", False),
        mlp_bias=fields.boolean("mlp_bias", False),
    )


HELIUM: Final = Family("HeliumForCausalLM", "helium", _read, DecoderLayer)
