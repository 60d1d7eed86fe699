"""Encoders of BERT's kind as decoders (``is_decoder``): BERT, RoBERTa, ELECTRA, RoFormer, RemBERT and their like."""

from collections.abc import Mapping
from typing import Any, Final

from lang_core import DType, WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Cut, Recipe, RecipeOf, RenamedModules, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, token_ids_of
from transformer_core.family._layer import AttentionLayer, DecoderLayer
from transformer_core.family._layer_configs import NormKind, OuterConfig
from transformer_core.family._other_layers import NormedSumLayer
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._rope_config import RopeConfig, RopeKind, RopeMode

_POSITIONS: Final = "model.embed_positions.weight"
_TYPES: Final = "model.embed_types.weight"
_BIAS: Final = "lm_head.bias"
_LAYER: Final = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.o_proj": "attention.output.dense",
    "input_layernorm": "attention.output.LayerNorm",
    "mlp.up_proj": "intermediate.dense",
    "mlp.down_proj": "output.dense",
    "post_attention_layernorm": "output.LayerNorm",
}
_PREDICTIONS: Final = {
    "lm_head": "cls.predictions.decoder",
    "transform.dense": "cls.predictions.transform.dense",
    "transform.norm": "cls.predictions.transform.LayerNorm",
}
_LM_HEAD: Final = {
    "lm_head": "lm_head.decoder",
    "transform.dense": "lm_head.dense",
    "transform.norm": "lm_head.layer_norm",
}


def _config(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    """Reads the fields of BERT; ``known`` are attributes that the family reads itself."""
    if not fields.boolean("is_decoder", False):
        fields.refuse("is_decoder", f"true: {architecture} is causal only as a decoder; take the masked-LM head")
    if fields.boolean("add_cross_attention", False):
        fields.refuse("add_cross_attention", "false: attention to an encoder is not built")
    fields.choice("position_embedding_type", ("absolute",), "absolute")
    heads, _, head_size = heads_of(fields, kv_heads_default=True)
    layers, positions = fields.integer("num_hidden_layers"), fields.integer("max_position_embeddings", 512)
    values: dict[str, Any] = {
        "architecture": architecture,
        "vocabulary": fields.integer("vocab_size"),
        "hidden": fields.integer("hidden_size"),
        "intermediate": fields.integer("intermediate_size"),
        "layers": layers,
        "heads": heads,
        "kv_heads": heads,
        "head_size": head_size,
        "norm": NormKind.LAYER,
        "norm_eps": fields.number("layer_norm_eps", 1e-12),
        "rope": RopeConfig(rotated=2, trained_length=positions),
        "rope_kinds": (RopeKind.NONE,) * layers,
        "windows": (None,) * layers,
        "activation": activation_of(fields, default="gelu"),
        "gated_mlp": False,
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "learned_positions": positions,
        "embedding_norm": True,
        "final_norm": False,
        "post_norm": True,
        "head_bias": True,
        "tied": fields.boolean("tie_word_embeddings", True),
        **token_ids_of(fields),
    }
    return DecoderConfig(**{**values, **known})


def _outer(fields: ConfigFields, transform: Activation | None, *, types: bool = True, **sizes: int) -> OuterConfig:
    hidden, count = fields.integer("hidden_size"), fields.integer("type_vocab_size", 2)
    return OuterConfig(
        embedding=sizes.get("embedding", hidden),
        token_types=count if types else 0,
        first_position=sizes.get("first", 0),
        transform=transform,
        transformed=sizes.get("transformed", hidden),
    )


def _bert(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    return _config(
        fields, architecture, outer=_outer(fields, activation_of(fields, default=known.pop("act", "gelu"))), **known
    )


def _roberta(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    """Reads RoBERTa's fields: the first position comes after the padding's row, and the head has a GELU."""
    positions = fields.integer("max_position_embeddings", 512) - fields.integer("pad_token_id", 1, minimum=0) - 1
    if positions < 1:
        fields.refuse("max_position_embeddings", "more than pad_token_id + 1, for positions begin after that row")
    rope = RopeConfig(rotated=2, trained_length=positions)
    outer = _outer(fields, Activation.GELU, first=fields.integer("pad_token_id", 1, minimum=0) + 1)
    return _config(fields, architecture, outer=outer, learned_positions=positions, rope=rope, **known)


def _big_bird(fields: ConfigFields, architecture: str) -> DecoderConfig:
    if fields.choice("attention_type", ("original_full", "block_sparse"), "block_sparse") != "original_full":
        fields.refuse("attention_type", "original_full: a BigBird is no decoder with sparse blocks, nor transformers'")
    scaled = fields.boolean("rescale_embeddings", False)
    return _bert(
        fields,
        architecture,
        act="gelu_new",
        activation=activation_of(fields, default="gelu_new"),
        qkv_bias=fields.boolean("use_bias", True),
        embedding_scale=fields.integer("hidden_size") ** 0.5 if scaled else 1.0,
    )


def _ernie(fields: ConfigFields, architecture: str) -> DecoderConfig:
    if fields.boolean("use_task_id", False):
        fields.refuse("use_task_id", "false: embeddings of tasks are not built")
    return _bert(fields, architecture)


def _bert_generation(fields: ConfigFields, architecture: str) -> DecoderConfig:
    return _config(fields, architecture, outer=_outer(fields, None, types=False))


def _electra(fields: ConfigFields, architecture: str) -> DecoderConfig:
    size = fields.integer("embedding_size", 128)
    return _config(fields, architecture, outer=_outer(fields, Activation.GELU, embedding=size, transformed=size))


def _rembert(fields: ConfigFields, architecture: str) -> DecoderConfig:
    embedding, transformed = fields.integer("input_embedding_size", 256), fields.integer("output_embedding_size", 1664)
    if fields.boolean("tie_word_embeddings", False):
        fields.refuse("tie_word_embeddings", "false: embeddings and output projection have sizes of their own")
    activation = activation_of(fields, default="gelu")
    outer = _outer(fields, activation, embedding=embedding, transformed=transformed)
    return _config(fields, architecture, outer=outer, tied=False)


def _roformer(fields: ConfigFields, architecture: str) -> DecoderConfig:
    if fields.boolean("rotary_value", False):
        fields.refuse("rotary_value", "false: RoPE of values is not built")
    size = fields.integer("embedding_size") if fields.has("embedding_size") else fields.integer("hidden_size")
    _, _, head_size = heads_of(fields, kv_heads_default=True)
    if head_size % 2:
        fields.refuse("hidden_size", "heads of an even size, for RoPE turns pairs")
    positions = fields.integer("max_position_embeddings", 1536)
    return _config(
        fields,
        architecture,
        outer=_outer(fields, activation_of(fields, default="gelu"), embedding=size, transformed=size),
        learned_positions=0,
        rope=RopeConfig(rotated=head_size, trained_length=positions, mode=RopeMode.INTERLEAVED),
        rope_kinds=(),
    )


_PRE_NORM: Final[dict[str, Any]] = {"post_norm": False, "final_norm": True}


def _layer(config: DecoderConfig, index: int, dtype: DType) -> AttentionLayer | DecoderLayer:
    return (NormedSumLayer if config.post_norm else DecoderLayer)(config, index, dtype)


def _names(above: str, head: Mapping[str, str], **others: str) -> RenamedModules:
    """Returns the names of a checkpoint's modules.

    Args:
        above: path of the model.
        head: names of the head's modules.
        **others: ``norm`` after the last layer; ``before`` and ``after``, the norms of a layer; ``project``.
    """
    layer = {**_LAYER}
    layer["input_layernorm"] = others.get("before", layer["input_layernorm"])
    layer["post_attention_layernorm"] = others.get("after", layer["post_attention_layernorm"])
    embeddings = f"{above}.embeddings"
    return RenamedModules(
        {
            "model.embed_tokens": f"{embeddings}.word_embeddings",
            "model.embed_positions": f"{embeddings}.position_embeddings",
            "model.embed_types": f"{embeddings}.token_type_embeddings",
            "model.embed_norm": f"{embeddings}.LayerNorm",
            "model.embed_projection": f"{above}.{others.get('project', 'embeddings_project')}",
            "model.norm": f"{above}.{others.get('norm', 'encoder.LayerNorm')}",
            **head,
            **{f"model.layers.{{}}.{name}": f"{above}.encoder.layer.{{}}.{stored}" for name, stored in layer.items()},
        }
    )


def _stored(keys: RenamedModules, bias: str | None) -> Any:
    """Returns the recipes under these names; ``bias`` is that of a tied output projection, if it has another name."""

    def of(config: DecoderConfig) -> RecipeOf:
        def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
            key, outer = keys.key(name, source), config.outer
            if name == _BIAS:
                keys_of_bias = [key] if bias is None else [bias, key] if config.tied else [key, bias]
                return Stored(next(filter(source.has, keys_of_bias), keys_of_bias[0]), shape)
            if outer is None or name not in (_POSITIONS, _TYPES):
                return Stored(key, shape)
            first, rows = (outer.first_position, outer.first_position + shape[0]), (0, outer.token_types)
            start, count = first if name == _POSITIONS else rows
            return Cut(key, (count, *shape[1:]), 0, start, start + shape[0])

        return recipe_of

    return of


def _family(architecture: str, model_type: str, read: Any, names: RenamedModules, bias: str | None = None) -> Family:
    return Family(
        architecture,
        model_type,
        lambda fields: read(fields, architecture),
        _layer,
        _stored(names, bias),
        "*encoder.layer.{}",
        ("*.embeddings.position_ids", "*.pooler.*", "*.encoder.embed_positions.weight", *_BIASES),
    )


_CLS: Final = "cls.predictions.bias"
_HEAD_BIAS: Final = "lm_head.bias"
_BIASES: Final = (_CLS, "cls.predictions.decoder.bias", _HEAD_BIAS, "lm_head.decoder.bias")


def _pre_norm_roberta(fields: ConfigFields, architecture: str) -> DecoderConfig:
    return _roberta(fields, architecture, **_PRE_NORM)


def _roberta_xl(fields: ConfigFields, architecture: str) -> DecoderConfig:
    return _roberta(fields, architecture, **_PRE_NORM, embedding_norm=False)


def _megatron(fields: ConfigFields, architecture: str) -> DecoderConfig:
    return _bert(fields, architecture, **_PRE_NORM, embedding_norm=False)


BERT_DECODERS: Final = (
    _family("BertLMHeadModel", "bert", _bert, _names("bert", _PREDICTIONS), _CLS),
    _family("ErnieForCausalLM", "ernie", _ernie, _names("ernie", _PREDICTIONS), _CLS),
    _family("BigBirdForCausalLM", "big_bird", _big_bird, _names("bert", _PREDICTIONS), _CLS),
    _family(
        "BertGenerationDecoder",
        "bert-generation",
        _bert_generation,
        _names("bert", {"lm_head": "lm_head.decoder"}),
        _HEAD_BIAS,
    ),
    _family(
        "MegatronBertForCausalLM",
        "megatron-bert",
        _megatron,
        _names("bert", _PREDICTIONS, norm="encoder.ln", before="attention.ln", after="ln"),
        _CLS,
    ),
    _family(
        "RemBertForCausalLM",
        "rembert",
        _rembert,
        _names(
            "rembert",
            {
                "lm_head": "cls.predictions.decoder",
                "transform.dense": "cls.predictions.dense",
                "transform.norm": "cls.predictions.LayerNorm",
            },
            project="encoder.embedding_hidden_mapping_in",
        ),
    ),
    _family("RoFormerForCausalLM", "roformer", _roformer, _names("roformer", _PREDICTIONS), _CLS),
    _family(
        "ElectraForCausalLM",
        "electra",
        _electra,
        _names(
            "electra",
            {
                "lm_head": "generator_lm_head",
                "transform.dense": "generator_predictions.dense",
                "transform.norm": "generator_predictions.LayerNorm",
            },
        ),
    ),
    *(
        _family(f"{name}ForCausalLM", model_type, _roberta, _names(above, _LM_HEAD), _HEAD_BIAS)
        for name, model_type, above in (
            ("Roberta", "roberta", "roberta"),
            ("XLMRoberta", "xlm-roberta", "roberta"),
            ("Camembert", "camembert", "roberta"),
            ("Data2VecText", "data2vec-text", "data2vec_text"),
        )
    ),
    _family(
        "RobertaPreLayerNormForCausalLM",
        "roberta-prelayernorm",
        _pre_norm_roberta,
        _names(
            "roberta_prelayernorm",
            _LM_HEAD,
            norm="LayerNorm",
            before="attention.LayerNorm",
            after="intermediate.LayerNorm",
        ),
        _HEAD_BIAS,
    ),
    _family(
        "XLMRobertaXLForCausalLM",
        "xlm-roberta-xl",
        _roberta_xl,
        _names("roberta", _LM_HEAD, before="attention.self_attn_layer_norm", after="LayerNorm"),
        _HEAD_BIAS,
    ),
)
