"""ModernBERT as a decoder (Ettin, arXiv:2507.11412): RoPE, gates, windows in most layers, no norm before the first."""

from typing import Any, Final

from lang_core import DType, ExecutionContext, Tensor, WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import FusedKeys, Recipe, RecipeOf, RenamedModules, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, layer_types, llama_kind, whole_rope
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind, OuterConfig
from transformer_core.family._layer_types import FULL, SLIDING, rope_kinds
from transformer_core.layers._rope_config import RopeConfig

_LAYER: Final = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "mlp_norm",
    "self_attn.q_proj": "attn.q_proj",
    "self_attn.k_proj": "attn.k_proj",
    "self_attn.v_proj": "attn.v_proj",
    "self_attn.o_proj": "attn.Wo",
    "mlp.down_proj": "mlp.Wo",
}
_KEYS: Final = RenamedModules(
    {
        "model.embed_tokens": "model.embeddings.tok_embeddings",
        "model.embed_norm": "model.embeddings.norm",
        "model.norm": "model.final_norm",
        "transform.dense": "lm_head.dense",
        "transform.norm": "lm_head.norm",
        "lm_head": "decoder",
        **{f"model.layers.{{}}.{name}": f"model.layers.{{}}.{stored}" for name, stored in _LAYER.items()},
    }
)
_BASES: Final = {FULL: ("global_rope_theta", 160000.0), SLIDING: ("local_rope_theta", 10000.0)}


class _FirstLayer(DecoderLayer):
    """Layer without a norm before attention: embeddings are normed already."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.input_layernorm = None

    def normed(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Returns x as it is."""
        return x


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, _, head_size = heads_of(fields, kv_heads_default=True)
    layers, every = fields.integer("num_hidden_layers"), fields.integer("global_attn_every_n_layers", 3)
    kinds = layer_types(fields, [SLIDING if index % every else FULL for index in range(layers)])
    biased, normed = fields.boolean("attention_bias", False), fields.boolean("norm_bias", False)
    if fields.boolean("classifier_bias", False):
        fields.refuse("classifier_bias", "false: a bias of the layer before the head is not built")
    window = fields.integer("sliding_window", max(fields.integer("local_attention", 128, minimum=2) // 2, 1))
    hidden = fields.integer("hidden_size")
    return llama_kind(
        fields,
        MODERNBERT_DECODER.architecture,
        heads=heads,
        kv_heads=heads,
        head_size=head_size,
        norm=NormKind.LAYER if normed else NormKind.LAYER_WITHOUT_BIAS,
        norm_eps=fields.number("norm_eps", 1e-5),
        activation=activation_of(fields, "hidden_activation", "gelu"),
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=fields.boolean("mlp_bias", False),
        windows=tuple(window if kind == SLIDING else None for kind in kinds),
        rope=_rope(fields, FULL, head_size),
        local_rope=_rope(fields, SLIDING, head_size),
        rope_kinds=rope_kinds(kinds),
        embedding_norm=True,
        head_bias=fields.boolean("decoder_bias", True),
        tied=fields.boolean("tie_word_embeddings", True),
        outer=OuterConfig(
            embedding=hidden,
            transform=activation_of(fields, "classifier_activation", "gelu"),
            transformed=hidden,
            transform_bias=False,
        ),
    )


def _rope(fields: ConfigFields, kind: str, head_size: int) -> RopeConfig:
    """Reads the RoPE of a type of layers, from the forms of transformers 4 and 5."""
    name, base = _BASES[kind]
    base = fields.number(name, base, above=1.0)
    values: dict[str, Any] = {**fields.values, "rope_theta": None}
    if fields.has("rope_parameters"):
        both = fields.object("rope_parameters")
        values["rope_parameters"] = dict(both.object(kind).values) if both.has(kind) else {"rope_type": "default"}
        values["rope_scaling"] = None
    return whole_rope(ConfigFields(values, fields.where), MODERNBERT_DECODER.architecture, head_size, default_base=base)


def _layer(config: DecoderConfig, index: int, dtype: DType) -> DecoderLayer:
    return (DecoderLayer if index else _FirstLayer)(config, index, dtype)


def _stored(config: DecoderConfig) -> RecipeOf:
    fused = FusedKeys({"mlp.Wi": [("gate_proj", config.intermediate), ("up_proj", config.intermediate)]})

    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        return fused(name, shape, source) or Stored(_KEYS.key(name, source), shape)

    return recipe_of


MODERNBERT_DECODER: Final = Family("ModernBertDecoderForCausalLM", "modernbert-decoder", _read, _layer, _stored)
