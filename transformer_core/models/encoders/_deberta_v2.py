"""DeBERTa 2 and 3 (He et al. 2021, arXiv:2111.09543): a BERT whose scores compare contents with relative positions."""

import math
from dataclasses import replace
from typing import Any, Final

from lang_core import ExecutionContext, Tensor
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._fields import activation_of
from transformer_core.family._model import ModelFamily
from transformer_core.layers._disentangled import DisentangledConfig
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.encoders._bert import ANY_LAYER, BERT_NAMES, read_bert, read_post_norm_stack
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

_LAYER: Final = "encoder.layers.{}."
_SELF: Final = "encoder.layer.{}.attention.self."
_KEYS: Final = RenamedModules(
    {
        **BERT_NAMES,
        f"{_LAYER}self_attn.q_proj": f"{_SELF}query_proj",
        f"{_LAYER}self_attn.k_proj": f"{_SELF}key_proj",
        f"{_LAYER}self_attn.v_proj": f"{_SELF}value_proj",
        f"{_LAYER}self_attn.pos_k_proj": f"{_SELF}pos_key_proj",
        f"{_LAYER}self_attn.pos_q_proj": f"{_SELF}pos_query_proj",
        "encoder.rel_norm": "encoder.LayerNorm",
        "head.dense": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
        "head.bias": "cls.predictions.bias",
    },
    above=("deberta.",),
)
_ALIASES: Final = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
_BUFFERS: Final = ("*embeddings.position_ids", "mask_predictions.*", "lm_predictions.*")
_HEADS: Final = ("cls.predictions.*", "pooler.*", "classifier.*")
_TERMS: Final = ("c2p", "p2c")


class DebertaForSequenceClassification(TextForSequenceClassification):
    """Classifier of texts by the first token's state, a matrix and a GELU; otherwise as its base class."""

    def _transformed(self, ctx: ExecutionContext, vectors: Tensor) -> Tensor:
        assert self.pooler is not None  # its configuration has one
        return Activation.GELU(ctx, self.pooler(ctx, vectors))


def read_deberta(fields: ConfigFields, architecture: str, *, first: bool = False, **known: Any) -> TextConfig:
    """Reads a configuration of the second version, or of the ``first`` one; ``known`` are attributes of it."""
    hidden = fields.integer("hidden_size")
    if fields.integer("embedding_size", hidden) != hidden:
        fields.refuse("embedding_size", f"hidden_size ({hidden}), or no such field")
    if fields.integer("conv_kernel_size", 0, minimum=0):
        fields.refuse("conv_kernel_size", "0, or no such field: convolutions beside the first layer are not supported")
    stack = read_post_norm_stack(fields, norm_eps=fields.number("layer_norm_eps", 1e-7))
    head_size = fields.integer("attention_head_size", hidden // stack.heads)
    if head_size != hidden // stack.heads:
        fields.refuse("attention_head_size", f"hidden_size / num_attention_heads ({hidden // stack.heads})")
    if fields.boolean("relative_attention", False):
        relative = _relative(fields, first)
        stack = replace(stack, relative=relative, key_bias=relative.key_biases)
    else:  # terms that are named count all the same, in the first version whatever their names
        terms = [one for one in _terms(fields) if first or one in _TERMS]
        scale = 1 / math.sqrt(head_size * (1 + len(terms)))
        stack = replace(stack, scale=scale, key_bias=not first)
    return read_bert(
        fields,
        architecture,
        stack=stack,
        types=fields.integer("type_vocab_size", 0, minimum=0),
        learned_positions=fields.boolean("position_biased_input", True),
        zero_padding=True,
        **known,
    )


def _terms(fields: ConfigFields) -> list[str]:
    terms = fields.values.get("pos_att_type") or []
    named = [one.strip().lower() for one in terms.split("|")] if isinstance(terms, str) else terms
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        fields.refuse("pos_att_type", f"one or both of {', '.join(_TERMS)}")
    return named


def _relative(fields: ConfigFields, first: bool) -> DisentangledConfig:
    longest = _length(fields, "max_relative_positions") or fields.integer("max_position_embeddings")
    buckets, named = 0 if first else _length(fields, "position_buckets"), _terms(fields)
    if not named or not set(named) <= set(_TERMS) or len(set(named)) < len(named):
        fields.refuse("pos_att_type", f"one or both of {', '.join(_TERMS)}")
    norms = "none" if first else fields.values.get("norm_rel_ebd") or "none"
    return DisentangledConfig(
        span=buckets or longest,
        longest=longest,
        buckets=bool(buckets),
        query="c2p" in named,
        key="p2c" in named,
        shared=not first and fields.boolean("share_att_key", False),
        normed="layer_norm" in [one.strip() for one in str(norms).lower().split("|")],
        key_biases=not first,
    )


def _length(fields: ConfigFields, name: str) -> int:
    """Reads a number of positions; 0 if the file has none, or one below 1, as transformers does."""
    value = fields.values.get(name)
    return 0 if isinstance(value, int) and value < 1 else fields.integer(name) if fields.has(name) else 0


def _read_masked_lm(fields: ConfigFields) -> TextConfig:
    if not fields.boolean("legacy", True):
        fields.refuse("legacy", "true, or no such field")
    head = HeadConfig(activation_of(fields, default="gelu"), aliases=_ALIASES)
    return read_deberta(fields, "DebertaV2ForMaskedLM", head=head)


def _read_classifier(fields: ConfigFields) -> TextConfig:
    fields.choice("pooler_hidden_act", ("gelu",), "gelu")
    if fields.integer("pooler_hidden_size", fields.integer("hidden_size")) != fields.integer("hidden_size"):
        fields.refuse("pooler_hidden_size", "hidden_size, or no such field")
    return read_deberta(fields, "DebertaV2ForSequenceClassification", pooler=True, labels=labels_of(fields))


DEBERTA_V2: Final = (
    ModelFamily(
        "DebertaV2Model",
        "deberta-v2",
        lambda fields: read_deberta(fields, "DebertaV2Model"),
        TextModel,
        lambda config: _KEYS,
        ANY_LAYER,
        (*_BUFFERS, *_HEADS),
        with_pooling,
    ),
    ModelFamily(
        "DebertaV2ForMaskedLM",
        "deberta-v2",
        _read_masked_lm,
        TextForMaskedLM,
        lambda config: _KEYS,
        ANY_LAYER,
        (*_BUFFERS, *_HEADS[1:]),
    ),
    ModelFamily(
        "DebertaV2ForSequenceClassification",
        "deberta-v2",
        _read_classifier,
        DebertaForSequenceClassification,
        lambda config: _KEYS,
        ANY_LAYER,
        (*_BUFFERS, _HEADS[0]),
    ),
    *token_families("DebertaV2", "deberta-v2", read_deberta, _KEYS, ANY_LAYER, (*_BUFFERS, *_HEADS[:2])),
)
