"""DBRX: a Mixtral with layer norms without biases, bounds of queries, keys and values, and fused projections."""

from typing import Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Cut, Recipe, RecipeOf, RenamedModules, Reshaped, StackedInputMajor, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, optional_number
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig, NormKind
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._routing import Routing

_SIZES: Final = {
    "hidden_size": "d_model",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "max_position_embeddings": "max_seq_len",
}
_LAYER: Final = {
    "input_layernorm": "norm_attn_norm.norm_1",
    "post_attention_layernorm": "norm_attn_norm.norm_2",
    "self_attn.o_proj": "norm_attn_norm.attn.out_proj",
    "mlp.gate": "ffn.router.layer",
}
_KEYS: Final = RenamedModules(
    {
        "model.embed_tokens": "transformer.wte",
        "model.norm": "transformer.norm_f",
        **{f"model.layers.{{}}.{name}": f"transformer.blocks.{{}}.{stored}" for name, stored in _LAYER.items()},
    }
)
_PROJECTIONS: Final = ("q_proj", "k_proj", "v_proj")
_EXPERTS: Final = {"gate_proj": "w1", "up_proj": "v1", "down_proj": "w2"}
_ACTIVATIONS: Final = {"silu": Activation.SILU, "gelu": Activation.GELU, "relu": Activation.RELU}


def _read(fields: ConfigFields) -> DecoderConfig:
    attention = fields.object("attn_config") if fields.has("attn_config") else ConfigFields({}, fields.where)
    feed = fields.object("ffn_config") if fields.has("ffn_config") else ConfigFields({}, fields.where)
    values = {"d_model": 2048, "n_heads": 16, "n_layers": 24, "max_seq_len": 2048, **fields.values}
    values["num_key_value_heads"] = attention.integer("kv_n_heads", 1)
    fields = ConfigFields(values, fields.where).renamed(_SIZES)
    fields = ConfigFields({**fields.values, **_rope(fields, attention)}, fields.where)
    heads, kv_heads, head_size = heads_of(fields)
    power = optional_number(feed, "moe_normalize_expert_weights", 1.0)
    if power not in (None, 1.0):
        feed.refuse("moe_normalize_expert_weights", "1 or null: other powers are not built")
    activation = feed.object("ffn_act_fn") if feed.has("ffn_act_fn") else ConfigFields({}, feed.where)
    inner = feed.integer("ffn_hidden_size", 3584)
    routing = Routing(
        experts=feed.integer("moe_num_experts", 4),
        chosen=feed.integer("moe_top_k", 1),
        normalized=power is not None,
    )
    return llama_kind(
        fields,
        DBRX.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        intermediate=inner,
        norm=NormKind.LAYER_WITHOUT_BIAS,
        norm_eps=1e-5,
        activation=_ACTIVATIONS[activation.choice("name", _ACTIVATIONS, "silu")],
        qkv_clip=optional_number(attention, "clip_qkv", None),
        experts=ExpertsConfig(routing=routing, inner=inner, layers=(True,) * fields.integer("num_hidden_layers")),
    )


def _rope(fields: ConfigFields, attention: ConfigFields) -> dict[str, object]:
    """Returns the base of RoPE, which published files have in ``attn_config``."""
    if not attention.has("rope_theta"):
        return {}
    base = attention.number("rope_theta", above=1.0)
    own = fields.object("rope_parameters") if fields.has("rope_parameters") else fields
    if own.has("rope_theta") and own.number("rope_theta", above=1.0) != base:
        attention.refuse("rope_theta", "that of rope_parameters, which transformers reads, or no such field")
    return {} if own.has("rope_theta") else {"rope_theta": base}


def _stored(config: DecoderConfig) -> RecipeOf:
    sizes = [config.heads * config.head_size, *(config.kv_heads * config.head_size,) * 2]

    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        _, _, part = name.rpartition("self_attn.")
        layer = name.split(".")[2] if name.startswith("model.layers.") else ""
        projection = part.partition(".")[0]
        if projection in _PROJECTIONS:
            start = sum(sizes[: _PROJECTIONS.index(projection)])
            key = f"transformer.blocks.{layer}.norm_attn_norm.attn.Wqkv.weight"
            return Cut(key, (sum(sizes), *shape[1:]), 0, start, start + shape[0])
        if ".mlp.experts." in name:
            return _expert(f"transformer.blocks.{layer}.ffn.experts.mlp.", name.rpartition(".")[2], shape, source)
        return Stored(_KEYS.key(name, source), shape)

    return recipe_of


def _expert(above: str, projection: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
    """Returns the recipe of all experts' projection, stored as one matrix; the last one is stored input-major."""
    key = above + _EXPERTS[projection]
    experts, outputs, inputs = shape
    if projection == "down_proj":
        return StackedInputMajor(key, shape)
    return Reshaped(key, (experts * outputs, inputs), shape)


DBRX: Final = Family("DbrxForCausalLM", "dbrx", _read, DecoderLayer, _stored, "transformer.blocks.{}")
