"""MPNet (Song et al. 2020, arXiv:2004.09297): a RoBERTa with biases of scores by distance, and without token types."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import ModelFamily
from transformer_core.models.encoders._bert import ANY_LAYER, BERT_NAMES, read_bert
from transformer_core.models.encoders._roberta import (
    CLASSIFIER_NAMES,
    HEAD_NAMES,
    MASKED_LM_HEAD,
    positions_after_padding,
)
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._text import TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

_PADDING: Final = 1  # whatever pad_token_id says
_BUCKETS: Final = 32  # whatever relative_attention_num_buckets says: that is the table's number of rows
_LAYER: Final = "encoder.layers.{}."
_NAMES: Final = {
    **BERT_NAMES,
    **{f"{_LAYER}self_attn.{part}_proj": f"encoder.layer.{{}}.attention.attn.{part}" for part in "qkvo"},
    f"{_LAYER}attention_norm": "encoder.layer.{}.attention.LayerNorm",
    "relative": "encoder.relative_attention_bias",
}
_PREFIX: Final = ("mpnet.",)
_KEYS: Final = RenamedModules({**_NAMES, **HEAD_NAMES}, above=_PREFIX)
_CLASSIFIER_KEYS: Final = RenamedModules({**_NAMES, **CLASSIFIER_NAMES}, above=_PREFIX)
_BUFFERS: Final = ("*embeddings.position_ids", "*pooler.dense.*")


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    return read_bert(
        fields,
        architecture,
        **positions_after_padding(fields, _PADDING),
        types=0,
        relative_rows=fields.integer("relative_attention_num_buckets", _BUCKETS, minimum=_BUCKETS),
        **known,
    )


MPNET: Final = (
    ModelFamily(
        "MPNetModel",
        "mpnet",
        lambda fields: _read(fields, "MPNetModel", pooler=True),
        TextModel,
        lambda config: _KEYS,
        ANY_LAYER,
        (*_BUFFERS, "lm_head.*"),
        with_pooling,
    ),
    ModelFamily(
        "MPNetForMaskedLM",
        "mpnet",
        lambda fields: _read(fields, "MPNetForMaskedLM", head=MASKED_LM_HEAD),
        TextForMaskedLM,
        lambda config: _KEYS,
        ANY_LAYER,
        _BUFFERS,
    ),
    ModelFamily(
        "MPNetForSequenceClassification",
        "mpnet",
        lambda fields: _read(fields, "MPNetForSequenceClassification", pooler=True, labels=labels_of(fields)),
        TextForSequenceClassification,
        lambda config: _CLASSIFIER_KEYS,
        ANY_LAYER,
        _BUFFERS,
    ),
    *token_families("MPNet", "mpnet", _read, _KEYS, ANY_LAYER, (*_BUFFERS, "lm_head.*")),
)
