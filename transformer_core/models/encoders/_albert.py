"""ALBERT (Lan et al. 2020, arXiv:1909.11942): a BERT with small embeddings that runs few layers many times."""

from dataclasses import replace
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._fields import activation_of
from transformer_core.family._model import ModelFamily
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.encoders._bert import read_bert, read_post_norm_stack
from transformer_core.models.encoders._sentence_head import DENSE_NAMES
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

_LAYER: Final = "encoder.layers.{}."
_STORED: Final = "encoder.albert_layer_groups.{}.albert_layers.0"
_KEYS: Final = RenamedModules(
    {
        "embeddings.tokens": "embeddings.word_embeddings",
        "embeddings.positions": "embeddings.position_embeddings",
        "embeddings.types": "embeddings.token_type_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        "embeddings.project": "encoder.embedding_hidden_mapping_in",
        f"{_LAYER}self_attn.q_proj": f"{_STORED}.attention.query",
        f"{_LAYER}self_attn.k_proj": f"{_STORED}.attention.key",
        f"{_LAYER}self_attn.v_proj": f"{_STORED}.attention.value",
        f"{_LAYER}self_attn.o_proj": f"{_STORED}.attention.dense",
        f"{_LAYER}attention_norm": f"{_STORED}.attention.LayerNorm",
        f"{_LAYER}mlp.up_proj": f"{_STORED}.ffn",
        f"{_LAYER}mlp.down_proj": f"{_STORED}.ffn_output",
        f"{_LAYER}mlp_norm": f"{_STORED}.full_layer_layer_norm",
        **DENSE_NAMES,
        "pooler": "pooler",
        "head.dense": "predictions.dense",
        "head.norm": "predictions.LayerNorm",
        "head.bias": "predictions.bias",
    },
    above=("albert.",),
)
_ALIASES: Final = ("predictions.decoder.weight", "predictions.decoder.bias")
_ANY_LAYER: Final = f"*{_STORED}"
_UNUSED: Final = ("*embeddings.position_ids", "sop_classifier.*")
_MASKED_LM: Final = "predictions.*"


def _activation(fields: ConfigFields) -> Activation:
    return activation_of(fields, default="gelu_new")


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    groups, count = fields.integer("num_hidden_groups", 1), fields.integer("num_hidden_layers")
    if groups > count:
        fields.refuse("num_hidden_groups", f"at most num_hidden_layers ({count})")
    if fields.integer("inner_group_num", 1) != 1:
        fields.refuse("inner_group_num", "1, or no such field")
    order = tuple(int(index / (count / groups)) for index in range(count))  # as transformers rounds
    stack = read_post_norm_stack(fields, activation=_activation(fields))
    return read_bert(
        fields,
        architecture,
        stack=replace(stack, layers=groups, order=order),
        embedding=fields.integer("embedding_size", 128),
        **known,
    )


def _read_masked_lm(fields: ConfigFields) -> TextConfig:
    return _read(fields, "AlbertForMaskedLM", head=HeadConfig(_activation(fields), aliases=_ALIASES))


def _read_classifier(fields: ConfigFields) -> TextConfig:
    return _read(fields, "AlbertForSequenceClassification", pooler=True, labels=labels_of(fields))


ALBERT: Final = (
    ModelFamily(
        "AlbertModel",
        "albert",
        lambda fields: _read(fields, "AlbertModel", pooler=True),
        TextModel,
        lambda config: _KEYS,
        _ANY_LAYER,
        (*_UNUSED, _MASKED_LM, "*pooler.*"),
        with_pooling,
    ),
    ModelFamily(
        "AlbertForMaskedLM",
        "albert",
        _read_masked_lm,
        TextForMaskedLM,
        lambda config: _KEYS,
        _ANY_LAYER,
        (*_UNUSED, "*pooler.*"),
    ),
    ModelFamily(
        "AlbertForSequenceClassification",
        "albert",
        _read_classifier,
        TextForSequenceClassification,
        lambda config: _KEYS,
        _ANY_LAYER,
        (*_UNUSED, _MASKED_LM),
    ),
    *token_families("Albert", "albert", _read, _KEYS, _ANY_LAYER, (*_UNUSED, _MASKED_LM, "*pooler.*")),
)
