"""GPT-NeoX Japanese: a GPT-NeoX without biases, but for attention's last projection in the last layer."""

from typing import Final

from lang_core import DType, WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import GroupedParts, Recipe, RecipeOf, RenamedModules, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._linear import Linear
from transformer_core.layers._rope_config import RopeConfig

_ABOVE: Final = "gpt_neox_japanese"
_IN_LAYER: Final = {
    "self_attn.query_key_value": "attention.query_key_value",
    "self_attn.o_proj": "attention.dense",
    "input_layernorm": "input_layernorm",
    "post_attention_layernorm": "post_attention_layernorm",
    "mlp.up_proj": "mlp.dense_h_to_4h",
    "mlp.down_proj": "mlp.dense_4h_to_h",
}
_KEYS: Final = RenamedModules(
    {
        "model.embed_tokens": f"{_ABOVE}.embed_in",
        "model.norm": f"{_ABOVE}.final_layer_norm",
        "lm_head": "embed_out",
        **{f"model.layers.{{}}.{name}": f"{_ABOVE}.layers.{{}}.{stored}" for name, stored in _IN_LAYER.items()},
    }
)
_PARTS: Final = {"q_proj": (0, 1), "k_proj": (1, 1), "v_proj": (2, 1)}


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, _, head_size = heads_of(fields, kv_heads_default=True)
    known = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
    for name, own in known.items():
        if fields.has(name):
            fields.refuse(name, f"no such field: transformers reads {own}, or rope_parameters")
    renamed = {name: fields.values[own] for name, own in known.items() if fields.has(own)}
    fields = ConfigFields({"max_position_embeddings": 2048, **renamed, **fields.values}, fields.where)
    return llama_kind(
        fields,
        GPT_NEOX_JAPANESE.architecture,
        heads=heads,
        kv_heads=heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(fields, head_size),
        intermediate=fields.integer("hidden_size") * fields.integer("intermediate_multiple_size", 4),
        norm=NormKind.LAYER,
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=activation_of(fields, default="gelu"),
        gated_mlp=False,
        tied=fields.boolean("tie_word_embeddings", True),
    )


def _layer(config: DecoderConfig, index: int, dtype: DType) -> DecoderLayer:
    layer = DecoderLayer(config, index, dtype)
    if index == config.layers - 1:
        inner = config.heads * config.head_size
        layer.self_attn.o_proj = Linear(inner, config.hidden, bias=True, dtype=dtype)
    return layer


def _stored(config: DecoderConfig) -> RecipeOf:
    grouped = GroupedParts(_KEYS, "query_key_value", config.heads, _PARTS)

    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        if name.endswith("self_attn.o_proj.bias"):
            return Stored(f"{_ABOVE}.layers.{config.layers - 1}.attention.dense_bias", shape)
        return grouped(name, shape, source) or Stored(_KEYS.key(name, source), shape)

    return recipe_of


GPT_NEOX_JAPANESE: Final = Family(
    "GPTNeoXJapaneseForCausalLM", "gpt_neox_japanese", _read, _layer, _stored, f"{_ABOVE}.layers.{{}}"
)
