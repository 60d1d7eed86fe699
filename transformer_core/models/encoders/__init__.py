"""Models that are no decoders: encoders, one family per file, and what they share."""

from transformer_core.models._registry import register
from transformer_core.models.encoders._bert import BERT, BERT_FOR_MASKED_LM, BertConfig, BertForMaskedLM, BertModel
from transformer_core.models.encoders._stack import EncoderConfig, EncoderLayer, EncoderStack, StackConfig

ENCODERS = (BERT, BERT_FOR_MASKED_LM)

for _family in ENCODERS:
    register(_family)

__all__ = [
    "ENCODERS",
    "BertConfig",
    "BertForMaskedLM",
    "BertModel",
    "EncoderConfig",
    "EncoderLayer",
    "EncoderStack",
    "StackConfig",
]
