"""Granite 3: a Llama with scales of embeddings, scores, residuals and logits."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer


def granite_kind(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    """Reads the fields that all Granites share; arguments as of ``llama_kind``."""
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("attention_bias", False)
    return llama_kind(
        fields,
        architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        qkv_bias=biased,
        output_bias=biased,
        scale=fields.number("attention_multiplier", 1.0),
        embedding_scale=fields.number("embedding_multiplier", 1.0),
        residual_scale=fields.number("residual_multiplier", 1.0),
        logits_scale=1.0 / fields.number("logits_scaling", 1.0),
        **known,
    )


def _read(fields: ConfigFields) -> DecoderConfig:
    return granite_kind(fields, GRANITE.architecture, mlp_bias=fields.boolean("mlp_bias", False))


GRANITE: Final = Family("GraniteForCausalLM", "granite", _read, DecoderLayer)
