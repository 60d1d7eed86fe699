"""CTRL (arXiv:1909.05858): sinusoidal positions, scaled embeddings, layer norms, biases everywhere."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.families._opt import fairseq_config

_EPS: Final = 1e-6
_SIZES: Final = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
}
_LAYER: Final = {
    "input_layernorm": "layernorm1",
    "post_attention_layernorm": "layernorm2",
    "self_attn.q_proj": "multi_head_attention.Wq",
    "self_attn.k_proj": "multi_head_attention.Wk",
    "self_attn.v_proj": "multi_head_attention.Wv",
    "self_attn.o_proj": "multi_head_attention.dense",
    "mlp.up_proj": "ffn.0",
    "mlp.down_proj": "ffn.2",
}
_KEYS: Final = RenamedModules(
    {
        "model.embed_tokens": "transformer.w",
        "model.norm": "transformer.layernorm",
        **{f"model.layers.{{}}.{name}": f"transformer.h.{{}}.{stored}" for name, stored in _LAYER.items()},
    },
    optional="transformer.",
)


def _read(fields: ConfigFields) -> DecoderConfig:
    values = {"n_positions": 256, **fields.values}
    fields = ConfigFields(values, fields.where).renamed(_SIZES)
    if fields.number("layer_norm_epsilon", _EPS) != _EPS:
        fields.refuse("layer_norm_epsilon", f"{_EPS:g}, which the norms of the layers always have")
    if fields.integer("hidden_size") % 2:
        fields.refuse("n_embd", "an even number: half of the positions' dims are sines")
    config = fairseq_config(
        fields,
        CTRL.architecture,
        intermediate=fields.integer("dff", 8192),
        activation=Activation.RELU,
        norm_eps=_EPS,
        embedding_scale=fields.integer("hidden_size") ** 0.5,
        first_sinusoid=0,
        paired_sinusoids=True,
        head_bias=True,
    )
    return replace(config, windows=(None,) * config.layers)


CTRL: Final = Family("CTRLLMHeadModel", "ctrl", _read, DecoderLayer, lambda config: _KEYS, "*h.{}")
