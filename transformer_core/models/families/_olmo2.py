"""OLMo-2 (arXiv:2501.00656): norms after attention and feed-forward, and over all heads of queries and keys."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._other_layers import PostNormLayer


def olmo_kind(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    """Reads the fields that OLMo-2 and OLMo-3 share; arguments as of ``llama_kind``."""
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
        qk_norm=True,
        qk_norm_whole=True,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        **known,
    )


def _read(fields: ConfigFields) -> DecoderConfig:
    return olmo_kind(fields, OLMO2.architecture)


OLMO2: Final = Family("Olmo2ForCausalLM", "olmo2", _read, PostNormLayer)
