"""Jais 2: a Llama with layer norms, biases, and a feed-forward of squared relu without a gate."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("attention_bias", True)
    return llama_kind(
        fields,
        JAIS2.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=fields.boolean("mlp_bias", True),
        norm=NormKind.LAYER,
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=activation_of(fields, default="relu2"),
        gated_mlp=False,
    )


JAIS2: Final = Family("Jais2ForCausalLM", "jais2", _read, DecoderLayer)
