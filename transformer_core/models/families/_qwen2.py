"""Qwen2 and 2.5: a Llama with biases of queries, keys and values, and windows in some layers."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind, windows_of_layers
from transformer_core.family._layer import DecoderLayer


def _read(fields: ConfigFields) -> DecoderConfig:
    return llama_kind(fields, QWEN2.architecture, qkv_bias=True, windows=windows_of_layers(fields))


QWEN2: Final = Family("Qwen2ForCausalLM", "qwen2", _read, DecoderLayer)
