"""Mistral: a Llama with a sliding window."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind, one_window
from transformer_core.family._layer import DecoderLayer


def _read(fields: ConfigFields) -> DecoderConfig:
    return llama_kind(fields, MISTRAL.architecture, windows=one_window(fields))


MISTRAL: Final = Family("MistralForCausalLM", "mistral", _read, DecoderLayer)
