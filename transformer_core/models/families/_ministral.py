"""Ministral 8B: a Mistral with windows in some layers."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind, windows_by_type
from transformer_core.family._layer import DecoderLayer


def _read(fields: ConfigFields) -> DecoderConfig:
    slides = fields.has("sliding_window") or "sliding_window" not in fields.values
    types = ["sliding_attention" if slides else "full_attention"] * fields.integer("num_hidden_layers")
    return llama_kind(fields, MINISTRAL.architecture, windows=windows_by_type(fields, types))


MINISTRAL: Final = Family("MinistralForCausalLM", "ministral", _read, DecoderLayer)
