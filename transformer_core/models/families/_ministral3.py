"""Ministral 3: a Mistral with attention temperature scaling beyond the trained length."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, one_window
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._attention_config import QueryGrowth


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, head_dim_needed=True)
    rope = fields.object("rope_scaling" if fields.has("rope_scaling") else "rope_parameters")
    growth = QueryGrowth(
        rope.number("llama_4_scaling_beta", above=-1.0), rope.integer("original_max_position_embeddings")
    )
    return llama_kind(
        fields,
        MINISTRAL3.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        windows=one_window(fields, default=None),
        query_growth=growth if growth.weight else None,
    )


MINISTRAL3: Final = Family("Ministral3ForCausalLM", "ministral3", _read, DecoderLayer)
