"""Gemma 1 (arXiv:2403.08295): zero-centred norms, scaled embeddings, a feed-forward gated by gelu."""

import math
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._feed_forward import Activation


def gemma_kind(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    """Reads the fields that all Gemmas share; arguments as of ``llama_kind``.

    Raises:
        ConfigError: attention is bidirectional, or as ``llama_kind``.
    """
    if fields.boolean("use_bidirectional_attention", False):
        fields.refuse("use_bidirectional_attention", "false or null: decoders look back only")
    heads, kv_heads, head_size = heads_of(fields, head_dim_needed=True)
    biased = fields.boolean("attention_bias", False)
    common = {
        "heads": heads,
        "kv_heads": kv_heads,
        "head_size": head_size,
        "qkv_bias": biased,
        "output_bias": biased,
        "zero_centred": True,
        "activation": Activation.GELU_TANH,
        "embedding_scale": math.sqrt(fields.integer("hidden_size")),
        "tied": fields.boolean("tie_word_embeddings", True),
    }
    return llama_kind(fields, architecture, **{**common, **known})


def _read(fields: ConfigFields) -> DecoderConfig:
    fields.choice("hidden_act", ("gelu_pytorch_tanh", "gelu"), "gelu_pytorch_tanh")  # the first files say gelu
    return gemma_kind(fields, GEMMA.architecture)


GEMMA: Final = Family("GemmaForCausalLM", "gemma", _read, DecoderLayer)
