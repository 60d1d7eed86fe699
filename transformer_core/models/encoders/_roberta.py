"""RoBERTa (Liu et al. 2019, arXiv:1907.11692) and XLM-RoBERTa (Conneau et al. 2019, arXiv:1911.02116).

A BERT with positions that start after the padding id, and its own heads. CamemBERT (Martin et al. 2020,
arXiv:1911.03894) is the same model. XLM-RoBERTa-XL (Goyal et al. 2021, arXiv:2105.00572) norms what attention and
feed-forward take, and the last layer's states, in place of the embeddings.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import ModelFamily
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.encoders._bert import ANY_LAYER, BERT_NAMES, read_bert, read_post_norm_stack
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
_XL_NAMES: Final = {
    **{name: stored for name, stored in BERT_NAMES.items() if name != "embeddings.norm"},
    "encoder.layers.{}.attention_norm": "encoder.layer.{}.attention.self_attn_layer_norm",
    "encoder.layers.{}.mlp_norm": "encoder.layer.{}.LayerNorm",
    "norm": "encoder.LayerNorm",
}
_XL_KEYS: Final = RenamedModules({**_XL_NAMES, **HEAD_NAMES}, above=_PREFIX)
_XL_CLASSIFIER_KEYS: Final = RenamedModules({**_XL_NAMES, **CLASSIFIER_NAMES}, above=_PREFIX)
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


def _read_xl(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    stack = read_post_norm_stack(fields, norm_eps=fields.number("layer_norm_eps", 1e-5))
    types = fields.integer("type_vocab_size", 1)
    pre_norm = {"stack": replace(stack, post_norm=False), "embedding_norm": False, "final_norm": True}
    return _read(fields, architecture, types=types, **pre_norm, **known)


def _families(
    name: str,
    model_type: str,
    read: Callable[..., TextConfig] = _read,
    keys: RenamedModules = _KEYS,
    classifier_keys: RenamedModules = _CLASSIFIER_KEYS,
) -> tuple[ModelFamily[TextConfig], ...]:
    model, masked, classifier = f"{name}Model", f"{name}ForMaskedLM", f"{name}ForSequenceClassification"
    return (
        ModelFamily(
            model,
            model_type,
            lambda fields: read(fields, model, pooler=True),
            TextModel,
            lambda config: keys,
            ANY_LAYER,
            (*_BUFFERS, "lm_head.*", "*pooler.dense.*"),
            with_pooling,
        ),
        ModelFamily(
            masked,
            model_type,
            lambda fields: read(fields, masked, head=MASKED_LM_HEAD),
            TextForMaskedLM,
            lambda config: keys,
            ANY_LAYER,
            (*_BUFFERS, "*pooler.dense.*"),
        ),
        ModelFamily(
            classifier,
            model_type,
            lambda fields: read(fields, classifier, pooler=True, labels=labels_of(fields)),
            TextForSequenceClassification,
            lambda config: classifier_keys,
            ANY_LAYER,
            (*_BUFFERS, "*pooler.dense.*"),
        ),
        *token_families(name, model_type, read, keys, ANY_LAYER, (*_BUFFERS, "lm_head.*")),
    )


ROBERTA: Final = _families("Roberta", "roberta")
XLM_ROBERTA: Final = _families("XLMRoberta", "xlm-roberta")
XLM_ROBERTA_XL: Final = _families("XLMRobertaXL", "xlm-roberta-xl", _read_xl, _XL_KEYS, _XL_CLASSIFIER_KEYS)
CAMEMBERT: Final = _families("Camembert", "camembert")
