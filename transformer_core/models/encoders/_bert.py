"""BERT (Devlin et al. 2018, arXiv:1810.04805): embeddings of tokens in their context on both sides."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._fields import activation_of
from transformer_core.family._model import ModelFamily
from transformer_core.models.encoders._sentence_head import DENSE_NAMES
from transformer_core.models.encoders._stack import StackConfig, labels_of
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

# Supported values of fields that select other variants of BERT.
_FIXED: Final = {"is_decoder": False, "add_cross_attention": False}


def read_bert(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    """Reads the configuration of an encoder that differs from a BERT in the ``known`` attributes only.

    Args:
        fields: fields of config.json.
        architecture: architecture of the family.
        **known: attributes of ``TextConfig`` that the family reads itself.

    Raises:
        ConfigError: a field is missing, of the wrong type, or not supported.
    """
    for name, value in _FIXED.items():
        if fields.boolean(name, value) is not value:
            fields.refuse(name, f"{str(value).lower()}, or no such field")
    fields.choice("position_embedding_type", ("absolute",), "absolute")
    read: dict[str, Any] = {
        "stack": known.get("stack") or read_post_norm_stack(fields),
        "vocabulary": fields.integer("vocab_size"),
        "positions": known.get("positions") or fields.integer("max_position_embeddings"),
        "types": known["types"] if "types" in known else fields.integer("type_vocab_size", 2),
    }
    return TextConfig(architecture=architecture, **{**read, **known})


def read_post_norm_stack(fields: ConfigFields, **known: Any) -> StackConfig:
    """Reads layers with norms after the residual additions; ``known`` are attributes of ``StackConfig``."""
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if hidden % heads and "head_size" not in known:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads ({heads})")
    read: dict[str, Any] = {
        "activation": activation_of(fields, default="gelu"),
        "norm_eps": fields.number("layer_norm_eps", 1e-12),
    }
    return StackConfig(
        hidden=hidden,
        intermediate=fields.integer("intermediate_size"),
        layers=fields.integer("num_hidden_layers"),
        heads=heads,
        post_norm=True,
        **{**read, **known},
    )


_LAYER: Final = "encoder.layers.{}."
BERT_NAMES: Final = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.types": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    f"{_LAYER}self_attn.q_proj": "encoder.layer.{}.attention.self.query",
    f"{_LAYER}self_attn.k_proj": "encoder.layer.{}.attention.self.key",
    f"{_LAYER}self_attn.v_proj": "encoder.layer.{}.attention.self.value",
    f"{_LAYER}self_attn.o_proj": "encoder.layer.{}.attention.output.dense",
    f"{_LAYER}attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
    f"{_LAYER}mlp.up_proj": "encoder.layer.{}.intermediate.dense",
    f"{_LAYER}mlp.down_proj": "encoder.layer.{}.output.dense",
    f"{_LAYER}mlp_norm": "encoder.layer.{}.output.LayerNorm",
    **DENSE_NAMES,
    "pooler": "pooler.dense",
}
"""Stored names of BERT's modules without a head, which other encoders have, too."""

_KEYS: Final = RenamedModules(
    {
        **BERT_NAMES,
        "head.dense": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
        "head.bias": "cls.predictions.bias",
    },
    above=("bert.",),
)
_ALIASES: Final = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
_BUFFERS: Final = ("*embeddings.position_ids", "cls.seq_relationship.*")
ANY_LAYER: Final = "*encoder.layer.{}"
"""Prefix of the keys of a layer's stored tensors."""


def _read_model(fields: ConfigFields) -> TextConfig:
    """Reads a BERT, or that of Jina embeddings 2 (arXiv:2310.19923): slopes in the place of positions, and gates."""
    if fields.values.get("position_embedding_type") != "alibi":
        return read_bert(fields, "BertModel", pooler=True)
    fields.choice("feed_forward_type", ("geglu",))
    stack = read_post_norm_stack(fields, gated_mlp=True, mlp_bias=False, down_bias=True)
    plain = ConfigFields({**fields.values, "position_embedding_type": None}, fields.where)
    return read_bert(plain, "BertModel", stack=stack, learned_positions=False, alibi=True, pooler=True)


def _read_masked_lm(fields: ConfigFields) -> TextConfig:
    head = HeadConfig(activation_of(fields, default="gelu"), aliases=_ALIASES)
    return read_bert(fields, "BertForMaskedLM", head=head)


def _read_classifier(fields: ConfigFields) -> TextConfig:
    return read_bert(fields, "BertForSequenceClassification", pooler=True, labels=labels_of(fields))


BERT: Final = ModelFamily(
    "BertModel",
    "bert",
    _read_model,
    TextModel,
    lambda config: _KEYS,
    ANY_LAYER,
    (*_BUFFERS, "cls.predictions.*", "*pooler.dense.*"),
    with_pooling,
)
BERT_FOR_MASKED_LM: Final = ModelFamily(
    "BertForMaskedLM",
    "bert",
    _read_masked_lm,
    TextForMaskedLM,
    lambda config: _KEYS,
    ANY_LAYER,
    (*_BUFFERS, "*pooler.dense.*"),
)
BERT_FOR_SEQUENCE_CLASSIFICATION: Final = ModelFamily(
    "BertForSequenceClassification",
    "bert",
    _read_classifier,
    TextForSequenceClassification,
    lambda config: _KEYS,
    ANY_LAYER,
    _BUFFERS,
)
BERT_TOKEN_HEADS: Final = token_families("Bert", "bert", read_bert, _KEYS, ANY_LAYER, (*_BUFFERS, "cls.predictions.*"))
