"""OpenELM (arXiv:2404.14619): a Llama with normed queries and keys, whose layers have sizes of their own."""

from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Cut, Recipe, RecipeOf, RenamedModules, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import LayerSizes

_NAMES: Final = {
    "hidden_size": "model_dim",
    "num_hidden_layers": "num_transformer_layers",
    "max_position_embeddings": "max_context_length",
    "rope_theta": "rope_freq_constant",
    "hidden_act": "activation_fn_name",
}
_LAYER: Final = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn.q_norm",
    "self_attn.k_norm": "attn.k_norm",
    "self_attn.o_proj": "attn.out_proj",
    "mlp.down_proj": "ffn.proj_2",
}
_KEYS: Final = RenamedModules(
    {
        "model.embed_tokens": "transformer.token_embeddings",
        "model.norm": "transformer.norm",
        **{f"model.layers.{{}}.{name}": f"transformer.layers.{{}}.{stored}" for name, stored in _LAYER.items()},
    }
)
_QKV: Final = ("q_proj", "k_proj", "v_proj")
_GATE_UP: Final = ("gate_proj", "up_proj")


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = fields.renamed(_NAMES)
    fields.choice("normalization_layer_name", ("rms_norm",), "rms_norm")
    if not fields.boolean("ffn_with_glu", True):
        fields.refuse("ffn_with_glu", "true: feed-forwards without a gate are not built")
    sizes = _sizes(fields)
    tied = fields.boolean("share_input_output_layers", True)
    fields = ConfigFields({**fields.values, "tie_word_embeddings": tied}, fields.where)
    first = sizes[0]
    return llama_kind(
        fields,
        OPENELM.architecture,
        heads=first.heads,
        kv_heads=first.kv_heads,
        head_size=first.head_size,
        intermediate=first.intermediate,
        layer_sizes=sizes,
        norm_eps=1e-6,
        qk_norm=fields.boolean("normalize_qk_projections", True),
    )


def _sizes(fields: ConfigFields) -> tuple[LayerSizes, ...]:
    """Reads the sizes of the layers: numbers of heads and F, the last one by a factor of D and a divisor."""
    layers, hidden = fields.integer("num_hidden_layers"), fields.integer("hidden_size")
    head_size, divisor = fields.integer("head_dim"), fields.integer("ffn_dim_divisor", 256)
    heads = _listed(fields, "num_query_heads", layers, int)
    kv_heads = _listed(fields, "num_kv_heads", layers, int)
    factors = _listed(fields, "ffn_multipliers", layers, float)
    if any(many % few for many, few in zip(heads, kv_heads, strict=True)):
        fields.refuse("num_kv_heads", f"divisors of num_query_heads ({heads})")
    inners = [_rounded(factor * hidden, divisor) for factor in factors]
    return tuple(
        LayerSizes(heads=many, kv_heads=few, head_size=head_size, intermediate=inner)
        for many, few, inner in zip(heads, kv_heads, inners, strict=True)
    )


def _listed(fields: ConfigFields, name: str, layers: int, kind: type) -> list[Any]:
    values: Any = fields.values.get(name)
    right = isinstance(values, list) and len(values) == layers
    if not right or any(isinstance(value, bool) or not isinstance(value, int | kind) for value in values):
        fields.refuse(name, f"a list of {layers} (num_transformer_layers) numbers")
    if not all(0 < value <= 1 << 20 for value in values):
        fields.refuse(name, f"numbers above 0 and up to {1 << 20}")
    return values


def _rounded(size: float, divisor: int) -> int:
    """Returns the multiple of a divisor next to a size, not less than nine tenths of it."""
    near = max(divisor, int(size + divisor / 2) // divisor * divisor)
    return near + divisor if near < 0.9 * size else near


def _stored(config: DecoderConfig) -> RecipeOf:
    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        if not name.startswith("model.layers."):
            return Stored(_KEYS.key(name, source), shape)
        layer, projection = name.split(".")[2], name.split(".")[-2]
        sizes = config.sizes_of(int(layer))
        if projection in _QKV:
            rows = [heads * sizes.head_size for heads in (sizes.heads or config.heads, *(sizes.kv_heads,) * 2)]
            return _part(f"transformer.layers.{layer}.attn.qkv_proj.weight", rows, _QKV.index(projection), shape)
        if projection in _GATE_UP:
            rows = [sizes.intermediate] * 2
            return _part(f"transformer.layers.{layer}.ffn.proj_1.weight", rows, _GATE_UP.index(projection), shape)
        return Stored(_KEYS.key(name, source), shape)

    return recipe_of


def _part(key: str, rows: list[int], index: int, shape: tuple[int, ...]) -> Recipe:
    start = sum(rows[:index])
    return Cut(key, (sum(rows), *shape[1:]), 0, start, start + rows[index])


OPENELM: Final = Family("OpenELMForCausalLM", "openelm", _read, DecoderLayer, _stored, "transformer.layers.{}")
