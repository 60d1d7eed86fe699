"""Persimmon: half of a head rotated, layer norms of queries and keys, squared relu, biases everywhere."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import GroupedParts, RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._attention_config import QueryKeyNormKind
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.models.families._bloom import QKV

_KEYS: Final = RenamedModules(
    {
        "model.norm": "model.final_layernorm",
        "model.layers.{}.self_attn.o_proj": "model.layers.{}.self_attn.dense",
        "model.layers.{}.self_attn.q_norm": "model.layers.{}.self_attn.q_layernorm",
        "model.layers.{}.self_attn.k_norm": "model.layers.{}.self_attn.k_layernorm",
        "model.layers.{}.mlp.up_proj": "model.layers.{}.mlp.dense_h_to_4h",
        "model.layers.{}.mlp.down_proj": "model.layers.{}.mlp.dense_4h_to_h",
    }
)


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    return llama_kind(
        fields,
        PERSIMMON.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(fields, head_size, default_share=0.5),
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        qk_norm=fields.boolean("qk_layernorm", True),
        qk_norm_kind=QueryKeyNormKind.LAYER,
        norm=NormKind.LAYER,
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=activation_of(fields, default="relu2"),
        gated_mlp=False,
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return first_of(GroupedParts(_KEYS, "query_key_value", config.heads, QKV), _KEYS)


PERSIMMON: Final = Family("PersimmonForCausalLM", "persimmon", _read, DecoderLayer, _stored)
