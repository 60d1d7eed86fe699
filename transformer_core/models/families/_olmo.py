"""OLMo 1 (arXiv:2402.00838): a Llama with layer norms without weights, and queries, keys and values in bounds."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, optional_number
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind

_EPS: Final = 1e-5  # whatever the file says


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("attention_bias", False)
    return llama_kind(
        fields,
        OLMO.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        qkv_bias=biased,
        output_bias=biased,
        qkv_clip=optional_number(fields, "clip_qkv", None),
        norm=NormKind.LAYER_WITHOUT_WEIGHT,
        norm_eps=_EPS,
    )


OLMO: Final = Family("OlmoForCausalLM", "olmo", _read, DecoderLayer)
