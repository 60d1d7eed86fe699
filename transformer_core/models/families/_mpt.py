"""MPT: ALiBi in place of positions, layer norms without biases, a feed-forward without a gate."""

import math
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import GroupedParts, RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, optional_number, token_ids_of
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._attention_config import Alibi
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._rope_config import RopeConfig, RopeKind
from transformer_core.models.families._bloom import QKV

_NAMES: Final = {"num_attention_heads": "n_heads", "num_hidden_layers": "n_layers", "hidden_size": "d_model"}
_KEYS: Final = RenamedModules(
    {
        "model.embed_tokens": "transformer.wte",
        "model.norm": "transformer.norm_f",
        "model.layers.{}.input_layernorm": "transformer.blocks.{}.norm_1",
        "model.layers.{}.post_attention_layernorm": "transformer.blocks.{}.norm_2",
        "model.layers.{}.self_attn.Wqkv": "transformer.blocks.{}.attn.Wqkv",
        "model.layers.{}.self_attn.o_proj": "transformer.blocks.{}.attn.out_proj",
        "model.layers.{}.mlp.up_proj": "transformer.blocks.{}.ffn.up_proj",
        "model.layers.{}.mlp.down_proj": "transformer.blocks.{}.ffn.down_proj",
    },
    optional="transformer.",
)
_BIAS_MAX: Final = 8.0
_MODEL: Final = {"no_bias": True}
_ATTENTION: Final = {"alibi": True, "prefix_lm": False, "qk_ln": False}


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = fields.renamed(_NAMES)
    attention = fields.object("attn_config") if fields.has("attn_config") else ConfigFields({}, fields.where)
    for part, known in ((fields, _MODEL), (attention, _ATTENTION)):
        for name, value in known.items():
            if part.boolean(name, value) is not value:
                part.refuse(name, f"{str(value).lower()}, or no such field: other models are not built")
    if attention.number("alibi_bias_max", _BIAS_MAX) != _BIAS_MAX:
        attention.refuse("alibi_bias_max", f"{_BIAS_MAX:g}, which transformers takes whatever the file says")
    attention.choice("attn_type", ("multihead_attention",), "multihead_attention")
    if fields.values.get("logit_scale") is not None:
        fields.refuse("logit_scale", "null, as transformers computes it")
    heads, _, head_size = heads_of(fields, kv_heads_default=True)
    layers, hidden = fields.integer("num_hidden_layers"), fields.integer("hidden_size")
    return DecoderConfig(
        architecture=MPT.architecture,
        vocabulary=fields.integer("vocab_size"),
        hidden=hidden,
        intermediate=_inner(fields, hidden),
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_size=head_size,
        norm=NormKind.LAYER_WITHOUT_BIAS,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        rope=RopeConfig(rotated=2, trained_length=fields.integer("max_seq_len", 2048)),
        rope_kinds=(RopeKind.NONE,) * layers,
        alibi=Alibi(_slopes(heads)),
        windows=(None,) * layers,
        activation=Activation.GELU,
        gated_mlp=False,
        tied=fields.boolean("tie_word_embeddings", True),
        qkv_clip=optional_number(attention, "clip_qkv", None),
        scale=optional_number(attention, "softmax_scale", None),
        **token_ids_of(fields),
    )


def _inner(fields: ConfigFields, hidden: int) -> int:
    ratio = fields.integer("expansion_ratio", 4)
    if ratio != 4:
        fields.refuse("expansion_ratio", "4, as transformers computes it")
    return ratio * hidden


def _slopes(heads: int) -> tuple[float, ...]:
    """Returns the slopes of heads: for a number that is not a power of 2, every other one of the next power first."""
    whole = 1 << math.ceil(math.log2(heads))
    slopes = [2.0 ** -(number * _BIAS_MAX / whole) for number in range(1, whole + 1)]
    return tuple(slopes if whole == heads else (slopes[1::2] + slopes[::2])[:heads])


def _stored(config: DecoderConfig) -> RecipeOf:
    return first_of(GroupedParts(_KEYS, "Wqkv", 1, QKV), _KEYS)


MPT: Final = Family("MptForCausalLM", "mpt", _read, DecoderLayer, _stored, "*blocks.{}")
