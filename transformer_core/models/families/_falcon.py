"""Falcon (arXiv:2311.16867): few heads of keys and values, attention beside the feed-forward; RW models have ALiBi."""

from typing import Final

from lang_core import DType
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import GroupedParts, RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, llama_kind, whole_rope
from transformer_core.family._layer import AttentionLayer, DecoderLayer
from transformer_core.family._layer_configs import NormKind
from transformer_core.family._other_layers import ParallelLayer
from transformer_core.layers._attention_config import Alibi
from transformer_core.layers._relative_bias import alibi_slopes
from transformer_core.layers._rope_config import RopeKind
from transformer_core.models.families._bloom import LAYER

_NAMES: Final = {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "num_kv_heads": "n_head_kv"}
_NORMS: Final = {
    "model.layers.{}.input_layernorm": "transformer.h.{}.ln_attn",
    "model.layers.{}.post_attention_layernorm": "transformer.h.{}.ln_mlp",
}


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = fields.renamed({**_NAMES, "hidden_size": "n_embed"})
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if hidden % heads:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads ({heads})")
    grouped, biased = fields.boolean("new_decoder_architecture", False), fields.boolean("bias", False)
    kv_heads = fields.integer("num_kv_heads", heads)
    if not grouped and fields.boolean("multi_query", True):
        kv_heads = 1
    elif not grouped and kv_heads != heads:
        fields.refuse("num_kv_heads", f"num_attention_heads ({heads}), without multi_query and the new architecture")
    if heads % kv_heads:
        fields.refuse("num_kv_heads", f"a divisor of num_attention_heads ({heads})")
    parallel = fields.boolean("parallel_attn", True)
    if grouped and not parallel:
        fields.refuse("parallel_attn", "true, with new_decoder_architecture")
    two_norms = _norm_count(fields, grouped) == 2
    if two_norms and not grouped and parallel:
        fields.refuse("num_ln_in_parallel_attn", "1, without new_decoder_architecture")
    layers, alibi = fields.integer("num_hidden_layers"), fields.boolean("alibi", False)
    values = {"max_position_embeddings": 2048, **fields.values}
    return llama_kind(
        fields,
        FALCON.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=hidden // heads,
        intermediate=fields.integer("ffn_hidden_size", 4 * hidden),
        rope=whole_rope(ConfigFields(values, fields.where), FALCON.architecture, hidden // heads),
        rope_kinds=(RopeKind.NONE,) * layers if alibi else (),
        alibi=Alibi(tuple(alibi_slopes(heads).tolist()), rounded=True) if alibi else None,
        norm=NormKind.LAYER,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=activation_of(fields, "activation", "gelu"),
        gated_mlp=False,
        tied=fields.boolean("tie_word_embeddings", True),
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=biased,
        parallel=parallel,
        shared_norm=parallel and not two_norms,
    )


def _norm_count(fields: ConfigFields, grouped: bool) -> int:
    """Reads the number of norms of a layer with attention and feed-forward side by side."""
    count = fields.integer("num_ln_in_parallel_attn", 2 if grouped else 1)
    if count > 2:
        fields.refuse("num_ln_in_parallel_attn", "1 or 2")
    return count


def _layer(config: DecoderConfig, index: int, dtype: DType) -> AttentionLayer | DecoderLayer:
    if config.parallel:
        return ParallelLayer(config, index, dtype, one_norm=config.shared_norm)
    return DecoderLayer(config, index, dtype)


def _stored(config: DecoderConfig) -> RecipeOf:
    norms = _NORMS if config.parallel and not config.shared_norm else {}
    keys = RenamedModules({**LAYER, **norms}, optional="transformer.")
    parts = {"q_proj": (0, config.heads // config.kv_heads), "k_proj": (config.heads // config.kv_heads, 1)}
    parts["v_proj"] = parts["k_proj"][0] + 1, 1
    return first_of(GroupedParts(keys, "query_key_value", config.kv_heads, parts), keys)


FALCON: Final = Family("FalconForCausalLM", "falcon", _read, _layer, _stored, "*h.{}")
