"""Nemotron and Minitron (arXiv:2402.16819): zero-centred layer norms, a feed-forward of squared relu without a gate."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._rope_config import RopeConfig


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields)
    biased = fields.boolean("attention_bias", False)
    return llama_kind(
        fields,
        NEMOTRON.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(fields, head_size, default_share=0.5),
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=fields.boolean("mlp_bias", False),
        norm=NormKind.LAYER,
        zero_centred=True,
        norm_eps=fields.number("norm_eps", 1e-5),
        activation=activation_of(fields, default="relu2"),
        gated_mlp=False,
    )


NEMOTRON: Final = Family("NemotronForCausalLM", "nemotron", _read, DecoderLayer)
