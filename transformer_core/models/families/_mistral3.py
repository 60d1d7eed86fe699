"""Mistral Small 3.1 and Ministral 3 as published: a Mistral of either kind beside a vision tower, which is left out."""

from dataclasses import replace
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig
from transformer_core.family._wrapped import text_of
from transformer_core.models.families._ministral3 import MINISTRAL3
from transformer_core.models.families._mistral import MISTRAL

_MISTRAL_DEFAULTS: Final[dict[str, Any]] = {  # transformers', of a text_config that is a Mistral
    "head_dim": 128,
    "hidden_size": 5120,
    "intermediate_size": 32768,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 40,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e9,
    "sliding_window": None,
    "vocab_size": 131072,
}


def _read(fields: ConfigFields) -> DecoderConfig:
    kind = fields.choice("model_type", (MISTRAL.model_type, MINISTRAL3.model_type), MISTRAL.model_type)
    if kind == MINISTRAL3.model_type:
        return MINISTRAL3.read(fields)
    return MISTRAL.read(ConfigFields({**_MISTRAL_DEFAULTS, **fields.values}, fields.where))


MISTRAL3: Final = text_of(replace(MISTRAL, read=_read), "Mistral3ForConditionalGeneration", "mistral3", tied=True)
