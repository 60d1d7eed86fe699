"""Orion, XVERSE, Aquila and InternLM 1: a Llama under its own names; Orion has layer norms, InternLM biases."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import NormKind


def _llama(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_size": head_size}
    return llama_kind(fields, architecture, **sizes, **known)


def _read(fields: ConfigFields) -> DecoderConfig:
    return _llama(fields, ORION.architecture, norm=NormKind.LAYER, norm_eps=fields.number("rms_norm_eps", 1e-5))


def _read_xverse(fields: ConfigFields) -> DecoderConfig:
    return _llama(fields, XVERSE.architecture)


def _read_aquila(fields: ConfigFields) -> DecoderConfig:
    return _llama(fields, AQUILA.architecture)


def _read_internlm(fields: ConfigFields) -> DecoderConfig:
    biased = fields.boolean("bias", True)
    return _llama(fields, INTERNLM.architecture, qkv_bias=biased, output_bias=biased)


ORION: Final = Family("OrionForCausalLM", "orion", _read, DecoderLayer)
XVERSE: Final = Family("XverseForCausalLM", "xverse", _read_xverse, DecoderLayer)
AQUILA: Final = Family("AquilaForCausalLM", "aquila", _read_aquila, DecoderLayer)
INTERNLM: Final = Family("InternLMForCausalLM", "internlm", _read_internlm, DecoderLayer)
