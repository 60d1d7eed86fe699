"""DistilBERT (Sanh et al. 2019, arXiv:1910.01108): half of a BERT's layers, without types of tokens and a pooler."""

from typing import Any, Final

from lang_core import ExecutionContext, Tensor
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._fields import activation_of
from transformer_core.family._model import ModelFamily
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.encoders._bert import read_bert
from transformer_core.models.encoders._sentence_head import DENSE_NAMES
from transformer_core.models.encoders._stack import StackConfig, labels_of
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

_NORM_EPS: Final = 1e-12  # of every norm, whatever the configuration says
_STORED: Final = "transformer.layer.{}"
_LAYER: Final = "encoder.layers.{}."
_KEYS: Final = RenamedModules(
    {
        "embeddings.tokens": "embeddings.word_embeddings",
        "embeddings.positions": "embeddings.position_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        **{f"{_LAYER}self_attn.{part}_proj": f"{_STORED}.attention.{part}_lin" for part in "qkv"},
        f"{_LAYER}self_attn.o_proj": f"{_STORED}.attention.out_lin",
        f"{_LAYER}attention_norm": f"{_STORED}.sa_layer_norm",
        f"{_LAYER}mlp.up_proj": f"{_STORED}.ffn.lin1",
        f"{_LAYER}mlp.down_proj": f"{_STORED}.ffn.lin2",
        f"{_LAYER}mlp_norm": f"{_STORED}.output_layer_norm",
        **DENSE_NAMES,
        "head.dense": "vocab_transform",
        "head.norm": "vocab_layer_norm",
        "head.bias": "vocab_projector.bias",
        "pooler": "pre_classifier",
    },
    above=("distilbert.",),
)
_ANY_LAYER: Final = f"*{_STORED}"
_BUFFERS: Final = ("*embeddings.position_ids",)
_MASKED_LM: Final = ("vocab_transform.*", "vocab_layer_norm.*", "vocab_projector.*")
_CLASSIFIER: Final = ("pre_classifier.*", "classifier.*")


class DistilBertForSequenceClassification(TextForSequenceClassification):
    """Classifier of texts by the first token's state, a matrix and a ReLU; otherwise as its base class."""

    def _transformed(self, ctx: ExecutionContext, vectors: Tensor) -> Tensor:
        assert self.pooler is not None  # its configuration has one
        return ctx.ops.relu(self.pooler(ctx, vectors))


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    hidden, heads = fields.integer("dim"), fields.integer("n_heads")
    if hidden % heads:
        fields.refuse("dim", f"a multiple of n_heads ({heads})")
    stack = StackConfig(
        hidden=hidden,
        intermediate=fields.integer("hidden_dim"),
        layers=fields.integer("n_layers"),
        heads=heads,
        norm_eps=_NORM_EPS,
        activation=_activation(fields),
        post_norm=True,
    )
    return read_bert(fields, architecture, stack=stack, types=0, **known)


def _activation(fields: ConfigFields) -> Activation:
    return activation_of(fields, "activation", "gelu")


def _read_masked_lm(fields: ConfigFields) -> TextConfig:
    head = HeadConfig(_activation(fields), aliases=("vocab_projector.weight", ""))
    return _read(fields, "DistilBertForMaskedLM", head=head)


DISTILBERT: Final = (
    ModelFamily(
        "DistilBertModel",
        "distilbert",
        lambda fields: _read(fields, "DistilBertModel"),
        TextModel,
        lambda config: _KEYS,
        _ANY_LAYER,
        (*_BUFFERS, *_MASKED_LM, *_CLASSIFIER),
        with_pooling,
    ),
    ModelFamily(
        "DistilBertForMaskedLM",
        "distilbert",
        _read_masked_lm,
        TextForMaskedLM,
        lambda config: _KEYS,
        _ANY_LAYER,
        _BUFFERS,
    ),
    ModelFamily(
        "DistilBertForSequenceClassification",
        "distilbert",
        lambda fields: _read(fields, "DistilBertForSequenceClassification", pooler=True, labels=labels_of(fields)),
        DistilBertForSequenceClassification,
        lambda config: _KEYS,
        _ANY_LAYER,
        (*_BUFFERS, *_MASKED_LM),
    ),
    *token_families("DistilBert", "distilbert", _read, _KEYS, _ANY_LAYER, (*_BUFFERS, *_MASKED_LM)),
)
