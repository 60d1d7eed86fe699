"""Phi-3 and Phi-4-mini: a Llama with fused projections in its checkpoints, long RoPE and windows."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import FusedKeys, RecipeOf
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, one_window
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._rope_config import RopeConfig

_ORIGINAL: Final = "original_max_position_embeddings"
_ORIGINAL_LENGTH: Final = 4096  # transformers' default, which precedes the value among RoPE's fields
_LONGROPE_NAMES: Final = ("su", "yarn")  # what early files call longrope


def _rope_fields(fields: ConfigFields) -> ConfigFields:
    """Returns the fields with this family's names and defaults of RoPE in place of the general ones."""
    values: dict[str, Any] = dict(fields.values)
    if not fields.has(_ORIGINAL):
        values[_ORIGINAL] = _ORIGINAL_LENGTH
    for name in ("rope_parameters", "rope_scaling"):
        if not fields.has(name):
            continue
        rope = fields.object(name).values
        kind = rope.get("rope_type", rope.get("type"))
        if kind in _LONGROPE_NAMES:
            values[name] = {**rope, "rope_type": "longrope"}
    return ConfigFields(values, fields.where)


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    return llama_kind(
        fields,
        PHI3.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(_rope_fields(fields), head_size),
        windows=one_window(fields, default=None),
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    q, kv, f = config.heads * config.head_size, config.kv_heads * config.head_size, config.intermediate
    return FusedKeys(
        {
            "self_attn.qkv_proj": [("q_proj", q), ("k_proj", kv), ("v_proj", kv)],
            "mlp.gate_up_proj": [("gate_proj", f), ("up_proj", f)],
        }
    )


PHI3: Final = Family("Phi3ForCausalLM", "phi3", _read, DecoderLayer, _stored)
