"""RoBERTa (Liu et al. 2019, arXiv:1907.11692) and XLM-RoBERTa (Conneau et al. 2019, arXiv:1911.02116).

A BERT with positions that start after the padding id, and its own heads. CamemBERT (Martin et al. 2020,
arXiv:1911.03894) is the same model.
"""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import ModelFamily
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.encoders._bert import ANY_LAYER, BERT_NAMES, read_bert
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._text import HeadConfig, TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

HEAD_NAMES: Final = {"head.dense": "lm_head.dense", "head.norm": "lm_head.layer_norm", "head.bias": "lm_head.bias"}
"""Stored names of the head of RoBERTa's masked language model, which MPNet has, too."""

CLASSIFIER_NAMES: Final = {"pooler": "classifier.dense", "classifier": "classifier.out_proj"}
"""Stored names of RoBERTa's classifier, which MPNet has, too."""

MASKED_LM_HEAD: Final = HeadConfig(Activation.GELU, aliases=("lm_head.decoder.weight", "lm_head.decoder.bias"))
"""Head of RoBERTa's masked language model; its activation does not depend on ``hidden_act``."""

_PREFIX: Final = ("roberta.",)
_KEYS: Final = RenamedModules({**BERT_NAMES, **HEAD_NAMES}, above=_PREFIX)
_CLASSIFIER_KEYS: Final = RenamedModules({**BERT_NAMES, **CLASSIFIER_NAMES}, above=_PREFIX)
_BUFFERS: Final = ("*embeddings.position_ids",)


def positions_after_padding(fields: ConfigFields, padding: int) -> dict[str, Any]:
    """Reads ``positions`` and ``padding`` of a ``TextConfig`` with positions that start after the padding id."""
    rows = fields.integer("max_position_embeddings")
    if rows < padding + 2:
        fields.refuse("max_position_embeddings", f"{padding + 2} at least, for positions begin after {padding}")
    return {"positions": rows - padding - 1, "padding": padding}


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    padding = positions_after_padding(fields, fields.integer("pad_token_id", 1, minimum=0))
    return read_bert(fields, architecture, **padding, **known)


def _families(name: str, model_type: str) -> tuple[ModelFamily[TextConfig], ...]:
    model, masked, classifier = f"{name}Model", f"{name}ForMaskedLM", f"{name}ForSequenceClassification"
    return (
        ModelFamily(
            model,
            model_type,
            lambda fields: _read(fields, model, pooler=True),
            TextModel,
            lambda config: _KEYS,
            ANY_LAYER,
            (*_BUFFERS, "lm_head.*", "*pooler.dense.*"),
            with_pooling,
        ),
        ModelFamily(
            masked,
            model_type,
            lambda fields: _read(fields, masked, head=MASKED_LM_HEAD),
            TextForMaskedLM,
            lambda config: _KEYS,
            ANY_LAYER,
            (*_BUFFERS, "*pooler.dense.*"),
        ),
        ModelFamily(
            classifier,
            model_type,
            lambda fields: _read(fields, classifier, pooler=True, labels=labels_of(fields)),
            TextForSequenceClassification,
            lambda config: _CLASSIFIER_KEYS,
            ANY_LAYER,
            (*_BUFFERS, "*pooler.dense.*"),
        ),
        *token_families(name, model_type, _read, _KEYS, ANY_LAYER, (*_BUFFERS, "lm_head.*")),
    )


ROBERTA: Final = _families("Roberta", "roberta")
XLM_ROBERTA: Final = _families("XLMRoberta", "xlm-roberta")
CAMEMBERT: Final = _families("Camembert", "camembert")
