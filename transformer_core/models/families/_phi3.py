"""Phi-3 and Phi-4-mini: a Llama with fused projections in its checkpoints, long RoPE and windows."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core._rope_config import RopeConfig
from transformer_core.checkpoints import FusedKeys, RecipeOf
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, one_window
from transformer_core.family._layer import DecoderLayer


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    return llama_kind(
        fields,
        PHI3.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(fields, head_size),
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
