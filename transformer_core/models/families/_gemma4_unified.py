"""Gemma 4 unified (12B), text: a Gemma 4 without experts and embeddings for every layer."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._scaled_layer import ScaledLayer
from transformer_core.family._wrapped import text_of
from transformer_core.models.families._gemma4 import GEMMA4


def _read(fields: ConfigFields) -> DecoderConfig:
    absent = {"enable_moe_block": False, "hidden_size_per_layer_input": 0}
    values = {"sliding_window": 1024, **fields.values, **absent}
    return replace(GEMMA4.read(ConfigFields(values, fields.where)), architecture=GEMMA4_UNIFIED.architecture)


GEMMA4_UNIFIED: Final = Family("Gemma4UnifiedForCausalLM", "gemma4_unified_text", _read, ScaledLayer)
GEMMA4_UNIFIED_WRAPPED: Final = text_of(
    GEMMA4_UNIFIED, "Gemma4UnifiedForConditionalGeneration", "gemma4_unified", tied=True
)
