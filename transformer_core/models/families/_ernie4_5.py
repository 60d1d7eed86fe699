"""ERNIE 4.5, dense: a Llama with interleaved RoPE."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, whole_rope
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._rope_config import RopeMode

_ROPE_BASE: Final = 5e5  # transformers' default


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, head_dim_needed=True)
    rope = whole_rope(fields, ERNIE4_5.architecture, head_size, default_base=_ROPE_BASE)
    biased = fields.boolean("use_bias", False)
    return llama_kind(
        fields,
        ERNIE4_5.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=replace(rope, mode=RopeMode.INTERLEAVED),
        tied=fields.boolean("tie_word_embeddings", True),
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=biased,
    )


ERNIE4_5: Final = Family("Ernie4_5ForCausalLM", "ernie4_5", _read, DecoderLayer)
