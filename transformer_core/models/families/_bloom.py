"""BLOOM (arXiv:2211.05100): ALiBi in place of positions, normed embeddings, layer norms, biases everywhere."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import GroupedParts, RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, token_ids_of
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._attention_config import Alibi
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._relative_bias import alibi_slopes
from transformer_core.layers._rope_config import RopeConfig, RopeKind

_NAMES: Final = {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "hidden_size": "n_embed"}
_TRAINED_LENGTH: Final = 2048
QKV: Final = {"q_proj": (0, 1), "k_proj": (1, 1), "v_proj": (2, 1)}
LAYER: Final = {
    "model.layers.{}.input_layernorm": "transformer.h.{}.input_layernorm",
    "model.layers.{}.post_attention_layernorm": "transformer.h.{}.post_attention_layernorm",
    "model.layers.{}.self_attn.query_key_value": "transformer.h.{}.self_attention.query_key_value",
    "model.layers.{}.self_attn.o_proj": "transformer.h.{}.self_attention.dense",
    "model.layers.{}.mlp.up_proj": "transformer.h.{}.mlp.dense_h_to_4h",
    "model.layers.{}.mlp.down_proj": "transformer.h.{}.mlp.dense_4h_to_h",
    "model.embed_tokens": "transformer.word_embeddings",
    "model.norm": "transformer.ln_f",
}
_KEYS: Final = RenamedModules(
    {**LAYER, "model.embed_norm": "transformer.word_embeddings_layernorm"}, optional="transformer."
)


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = fields.renamed(_NAMES)
    heads, _, head_size = heads_of(fields, kv_heads_default=True)
    layers, hidden = fields.integer("num_hidden_layers"), fields.integer("hidden_size")
    if fields.boolean("apply_residual_connection_post_layernorm", False):
        fields.refuse("apply_residual_connection_post_layernorm", "false: residuals of normed values are not built")
    return DecoderConfig(
        architecture=BLOOM.architecture,
        vocabulary=fields.integer("vocab_size"),
        hidden=hidden,
        intermediate=4 * hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_size=head_size,
        norm=NormKind.LAYER,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        rope=RopeConfig(rotated=2, trained_length=fields.integer("seq_length", _TRAINED_LENGTH)),
        rope_kinds=(RopeKind.NONE,) * layers,
        alibi=Alibi(tuple(alibi_slopes(heads).tolist())),
        embedding_norm=True,
        windows=(None,) * layers,
        activation=Activation.GELU_TANH,
        gated_mlp=False,
        tied=fields.boolean("tie_word_embeddings", True),
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        **token_ids_of(fields),
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return first_of(GroupedParts(_KEYS, "query_key_value", config.heads, QKV), _KEYS)


BLOOM: Final = Family("BloomForCausalLM", "bloom", _read, DecoderLayer, _stored, "*h.{}")
