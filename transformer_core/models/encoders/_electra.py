"""ELECTRA (Clark et al. 2020, arXiv:2003.10555): a BERT with small embeddings and without a pooler."""

from typing import Any, Final

from lang_core import ExecutionContext, Tensor
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import ModelFamily
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.encoders._bert import ANY_LAYER, BERT_NAMES, read_bert
from transformer_core.models.encoders._roberta import CLASSIFIER_NAMES
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

_NAMES: Final = {
    **BERT_NAMES,
    "embeddings.project": "embeddings_project",
    "head.dense": "generator_predictions.dense",
    "head.norm": "generator_predictions.LayerNorm",
    "head.bias": "generator_lm_head.bias",
}
_PREFIX: Final = ("electra.",)
_KEYS: Final = RenamedModules(_NAMES, above=_PREFIX)
_CLASSIFIER_KEYS: Final = RenamedModules({**_NAMES, **CLASSIFIER_NAMES}, above=_PREFIX)
_HEAD: Final = HeadConfig(Activation.GELU, aliases=("generator_lm_head.weight", ""))
_UNUSED: Final = (
    "*embeddings.position_ids",
    "generator_predictions.*",
    "generator_lm_head.*",
    "discriminator_predictions.*",
)


class ElectraForSequenceClassification(TextForSequenceClassification):
    """Classifier of texts by the first token's state, a matrix and a GELU; otherwise as its base class."""

    def _transformed(self, ctx: ExecutionContext, vectors: Tensor) -> Tensor:
        assert self.pooler is not None  # its configuration has one
        return Activation.GELU(ctx, self.pooler(ctx, vectors))


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    size, hidden = fields.integer("embedding_size", 128), fields.integer("hidden_size", 256)
    return read_bert(fields, architecture, embedding=None if size == hidden else size, **known)


ELECTRA: Final = (
    ModelFamily(
        "ElectraModel",
        "electra",
        lambda fields: _read(fields, "ElectraModel"),
        TextModel,
        lambda config: _KEYS,
        ANY_LAYER,
        _UNUSED,
        with_pooling,
    ),
    ModelFamily(
        "ElectraForMaskedLM",
        "electra",
        lambda fields: _read(fields, "ElectraForMaskedLM", head=_HEAD),
        TextForMaskedLM,
        lambda config: _KEYS,
        ANY_LAYER,
        (*_UNUSED[:1], *_UNUSED[3:]),
    ),
    ModelFamily(
        "ElectraForSequenceClassification",
        "electra",
        lambda fields: _read(fields, "ElectraForSequenceClassification", pooler=True, labels=labels_of(fields)),
        ElectraForSequenceClassification,
        lambda config: _CLASSIFIER_KEYS,
        ANY_LAYER,
        _UNUSED,
    ),
    *token_families("Electra", "electra", _read, _KEYS, ANY_LAYER, _UNUSED),
)
