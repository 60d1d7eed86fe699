"""Qwen, first version: a Llama with biases of queries, keys and values, under GPT-2's names."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import GroupedParts, RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind, whole_rope
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.families._bloom import QKV

_KEYS: Final = RenamedModules(
    {
        "model.embed_tokens": "transformer.wte",
        "model.norm": "transformer.ln_f",
        "model.layers.{}.input_layernorm": "transformer.h.{}.ln_1",
        "model.layers.{}.post_attention_layernorm": "transformer.h.{}.ln_2",
        "model.layers.{}.self_attn.c_attn": "transformer.h.{}.attn.c_attn",
        "model.layers.{}.self_attn.o_proj": "transformer.h.{}.attn.c_proj",
        "model.layers.{}.mlp.gate_proj": "transformer.h.{}.mlp.w2",
        "model.layers.{}.mlp.up_proj": "transformer.h.{}.mlp.w1",
        "model.layers.{}.mlp.down_proj": "transformer.h.{}.mlp.c_proj",
    }
)


def _read(fields: ConfigFields) -> DecoderConfig:
    """Reads a config.json; beyond ``seq_length`` other scores hold (``use_logn_attn``), so that is the reach."""
    heads, hidden = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    head_size = fields.integer("kv_channels", 128)
    if heads * head_size != hidden:
        fields.refuse("kv_channels", f"hidden_size / num_attention_heads ({hidden} / {heads})")
    if fields.number("rotary_pct", 1.0) != 1.0:
        fields.refuse("rotary_pct", "1: whole heads are rotated")
    if not fields.boolean("no_bias", True):
        fields.refuse("no_bias", "true: further biases are not built")
    inner = fields.integer("intermediate_size")
    if inner % 2:
        fields.refuse("intermediate_size", "an even number: twice the size of the feed-forward")
    values: dict[str, Any] = {
        "rope_theta": fields.number("rotary_emb_base", 10000.0, above=1.0),
        "max_position_embeddings": fields.integer("seq_length", 8192),
    }
    known = {**{name: value for name, value in fields.values.items() if name not in values}, **values}
    return llama_kind(
        fields,
        QWEN.architecture,
        heads=heads,
        kv_heads=heads,
        head_size=head_size,
        intermediate=inner // 2,
        rope=whole_rope(ConfigFields(known, fields.where), QWEN.architecture, head_size),
        norm_eps=fields.number("layer_norm_epsilon", 1e-6),
        activation=Activation.SILU,
        qkv_bias=True,
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return first_of(GroupedParts(_KEYS, "c_attn", 1, QKV), _KEYS)


QWEN: Final = Family("QWenLMHeadModel", "qwen", _read, DecoderLayer, _stored, "transformer.h.{}")
