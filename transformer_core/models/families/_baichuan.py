"""Baichuan and Baichuan 2, 7B: a Llama with fused projections; the second one norms the rows of its head."""

from typing import Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import FusedKeys, NormedRows, Recipe, RecipeOf, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind
from transformer_core.family._layer import DecoderLayer

_NORMED_VOCABULARY: Final = 125696  # of Baichuan 2; that of Baichuan is 64000
_PARTS: Final = ("q_proj", "k_proj", "v_proj")


def _read(fields: ConfigFields, architecture: str = "BaichuanForCausalLM") -> DecoderConfig:
    if not fields.has("max_position_embeddings"):
        fields.refuse("max_position_embeddings", "a length: models without it (13B) have ALiBi, and are not built")
    heads, hidden = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    if hidden % heads:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads ({heads})")
    return llama_kind(fields, architecture, heads=heads, kv_heads=heads, head_size=hidden // heads)


def _read_first(fields: ConfigFields) -> DecoderConfig:
    return _read(fields, BAICHUAN_FIRST.architecture)


def _stored(config: DecoderConfig) -> RecipeOf:
    fused = FusedKeys({"self_attn.W_pack": [(name, config.hidden) for name in _PARTS]})
    return first_of(_head, fused) if config.vocabulary == _NORMED_VOCABULARY else fused


def _head(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    return NormedRows(name, shape) if name == "lm_head.weight" else None


BAICHUAN: Final = Family("BaichuanForCausalLM", "baichuan", _read, DecoderLayer, _stored)
BAICHUAN_FIRST: Final = Family("BaiChuanForCausalLM", "baichuan", _read_first, DecoderLayer, _stored)
