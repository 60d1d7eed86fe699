"""GPT-2: learned positions, layer norms, biases everywhere; checkpoints store matrices input-major."""

from collections.abc import Mapping
from typing import Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Cut, Recipe, RecipeOf, Stored, Transposed
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, token_ids_of
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._rope_config import RopeConfig, RopeKind

_EMBEDDINGS: Final = ("model.embed_tokens", "model.embed_positions")
STORED: Final = {
    "model.embed_tokens": "wte",
    "model.embed_positions": "wpe",
    "model.norm": "ln_f",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "self_attn.o_proj": "attn.c_proj",
    "mlp.up_proj": "mlp.c_fc",
    "mlp.down_proj": "mlp.c_proj",
}
PARTS: Final = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def gpt2_kind(fields: ConfigFields, architecture: str, *, kv_heads: int | None = None) -> DecoderConfig:
    """Reads a config.json with GPT-2's field names.

    Args:
        fields: the config.json.
        architecture: name of the architecture.
        kv_heads: number of heads of keys and values. Default: ``n_head``.
    """
    for name, value in {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}.items():
        if fields.boolean(name, value) is not value:
            fields.refuse(name, f"{str(value).lower()}, or no such field")
    size, heads, layers, positions = map(fields.integer, ("n_embd", "n_head", "n_layer", "n_positions"))
    if size % heads or size // heads % 2:
        fields.refuse("n_embd", f"an even multiple of n_head ({heads})")
    return DecoderConfig(
        architecture=architecture,
        vocabulary=fields.integer("vocab_size"),
        hidden=size,
        intermediate=fields.integer("n_inner", 4 * size),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads or heads,
        head_size=size // heads,
        norm=NormKind.LAYER,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        rope=RopeConfig(rotated=size // heads, trained_length=positions),
        rope_kinds=(RopeKind.NONE,) * layers,
        learned_positions=positions,
        windows=(None,) * layers,
        activation=activation_of(fields, "activation_function", "gelu_new"),
        gated_mlp=False,
        tied=fields.boolean("tie_word_embeddings", True),
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        **token_ids_of(fields),
    )


def _read(fields: ConfigFields) -> DecoderConfig:
    return gpt2_kind(fields, GPT2.architecture)


def _stored(config: DecoderConfig) -> RecipeOf:
    return gpt2_stored({})


def gpt2_stored(names: Mapping[str, str]) -> RecipeOf:
    """Returns recipes under GPT-2's names, which begin with ``transformer.`` in some files.

    Args:
        names: further names of modules, by path.
    """
    known = {**STORED, **names}
    below = [f"transformer.{known[module]}.weight" for module in _EMBEDDINGS]

    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        if name == "lm_head.weight":
            return None
        above = "transformer." if any(map(source.has, below)) else ""
        module, _, kind = name.rpartition(".")
        if module in known:
            return Stored(f"{above}{known[module]}.{kind}", shape)
        _, _, layer, part = module.split(".", 3)
        if part in PARTS:
            key, start = f"{above}h.{layer}.attn.c_attn.{kind}", PARTS.index(part) * shape[0]
            if kind == "bias":
                return Cut(key, (3 * shape[0],), 0, start, start + shape[0])
            return Transposed(key, (shape[1], 3 * shape[0]), start, start + shape[0])
        key = f"{above}h.{layer}.{known[part]}.{kind}"
        return Transposed(key, shape[::-1], 0, shape[0]) if len(shape) == 2 else Stored(key, shape)

    return recipe_of


GPT2: Final = Family("GPT2LMHeadModel", "gpt2", _read, DecoderLayer, _stored, "*h.{}")
