"""GPT-Neo: a GPT-2 with windows in every other layer, scores that are not scaled, and projections of their own."""

from typing import Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, RecipeOf, RenamedModules
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, token_ids_of
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._rope_config import RopeConfig, RopeKind

_NAMES: Final = {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}
_KINDS: Final = ("global", "local")
_STORED: Final = {
    "model.embed_tokens": "transformer.wte",
    "model.embed_positions": "transformer.wpe",
    "model.norm": "transformer.ln_f",
    "model.layers.{}.input_layernorm": "transformer.h.{}.ln_1",
    "model.layers.{}.post_attention_layernorm": "transformer.h.{}.ln_2",
    **{f"model.layers.{{}}.self_attn.{name}_proj": f"transformer.h.{{}}.attn.attention.{name}_proj" for name in "qkv"},
    "model.layers.{}.self_attn.o_proj": "transformer.h.{}.attn.attention.out_proj",
    "model.layers.{}.mlp.up_proj": "transformer.h.{}.mlp.c_fc",
    "model.layers.{}.mlp.down_proj": "transformer.h.{}.mlp.c_proj",
}


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = fields.renamed(_NAMES)
    heads, _, head_size = heads_of(fields, kv_heads_default=True)
    layers, positions = fields.integer("num_hidden_layers"), fields.integer("max_position_embeddings", 2048)
    hidden, window = fields.integer("hidden_size"), fields.integer("window_size", 256)
    return DecoderConfig(
        architecture=GPT_NEO.architecture,
        vocabulary=fields.integer("vocab_size"),
        hidden=hidden,
        intermediate=fields.integer("intermediate_size", 4 * hidden),
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_size=head_size,
        norm=NormKind.LAYER,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        rope=RopeConfig(rotated=2, trained_length=positions),
        rope_kinds=(RopeKind.NONE,) * layers,
        learned_positions=positions,
        windows=tuple(window if kind == "local" else None for kind in _kinds(fields, layers)),
        activation=activation_of(fields, "activation_function", "gelu_new"),
        gated_mlp=False,
        tied=fields.boolean("tie_word_embeddings", True),
        output_bias=True,
        mlp_bias=True,
        scale=1.0,
        **token_ids_of(fields),
    )


def _kinds(fields: ConfigFields, layers: int) -> list[str]:
    """Reads the kind of each layer: listed, or in ``attention_types`` as lists of kinds, each with a count."""
    if fields.has("attention_layers"):
        listed = fields.values["attention_layers"]
        if not isinstance(listed, list) or len(listed) != layers or any(kind not in _KINDS for kind in listed):
            fields.refuse("attention_layers", f"a list of {layers} (num_layers) of global or local")
        return listed
    expected = f"a list of pairs of kinds (global, local) and a count, for {layers} (num_layers) layers"
    kinds: list[str] = []
    pairs = fields.values.get("attention_types")
    for pair in [[list(_KINDS), layers // 2]] if pairs is None else pairs if isinstance(pairs, list) else [None]:
        match pair:
            case [[*names], int(count)] if all(name in _KINDS for name in names) and 0 < count <= layers:
                kinds += names * count
            case _:
                fields.refuse("attention_types", expected)
    if len(kinds) != layers:
        fields.refuse("attention_types", expected)
    return kinds


def _stored(config: DecoderConfig) -> RecipeOf:
    keys = RenamedModules(_STORED, optional="transformer.")

    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        return None if name.startswith("lm_head") else keys(name, shape, source)

    return recipe_of


GPT_NEO: Final = Family("GPTNeoForCausalLM", "gpt_neo", _read, DecoderLayer, _stored, "*h.{}")
