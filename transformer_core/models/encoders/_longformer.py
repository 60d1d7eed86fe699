"""Longformer (Beltagy et al. 2020, arXiv:2004.05150): a RoBERTa with windows, and tokens that attend to all others."""

from dataclasses import replace
from typing import Any, Final

from lang_core import DType
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.models.encoders._bert import BERT_NAMES, read_bert, read_post_norm_stack
from transformer_core.models.encoders._roberta import (
    CLASSIFIER_NAMES,
    HEAD_NAMES,
    MASKED_LM_HEAD,
    positions_after_padding,
)
from transformer_core.models.encoders._stack import EncoderLayer, StackConfig
from transformer_core.models.encoders._text import HeadConfig, TextConfig
from transformer_core.models.encoders._text_families import text_families
from transformer_core.models.encoders._windows import GlobalAttention, GlobalTokens, Windows, window_distances

_NAMES: Final = {
    **BERT_NAMES,
    **HEAD_NAMES,
    **{
        f"encoder.layers.{{}}.self_attn.global_{part[0]}_proj": f"encoder.layer.{{}}.attention.self.{part}_global"
        for part in ("query", "key", "value")
    },
}
_ABOVE: Final = ("longformer.",)
_KEYS: Final = RenamedModules(_NAMES, above=_ABOVE)
_CLASSIFIER_KEYS: Final = RenamedModules({**_NAMES, **CLASSIFIER_NAMES}, above=_ABOVE)
# Without tokens that attend to all others, the projections of these are not read.
_UNUSED: Final = ("*embeddings.position_ids", "*_global.weight", "*_global.bias")


class GlobalEncoderLayer(EncoderLayer):
    """Layer with tokens that attend to all others; otherwise as its base class."""

    def __init__(self, config: StackConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.self_attn = GlobalAttention(config.hidden, config.heads, dtype=dtype)


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    stack = read_post_norm_stack(fields)
    everywhere: GlobalTokens = "first" if known.get("labels") else "question" if known.get("answers") else "none"
    if everywhere != "none":
        stack = replace(stack, layer=GlobalEncoderLayer)
    padding = positions_after_padding(fields, fields.integer("pad_token_id", 1, minimum=0))
    separator = fields.integer("sep_token_id", 2, minimum=0)
    windows = Windows(window_distances(fields, stack.layers), everywhere, separator)
    return read_bert(fields, architecture, stack=stack, windows=windows, **padding, **known)


def _head(fields: ConfigFields) -> HeadConfig:
    return MASKED_LM_HEAD


LONGFORMER: Final = text_families(
    "Longformer",
    "longformer",
    _read,
    lambda config: _KEYS,
    _head,
    _UNUSED,
    masked="lm_head.*",
    classifier_stored=lambda config: _CLASSIFIER_KEYS,
)
