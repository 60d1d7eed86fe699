"""GLM-4, first version: a Llama with interleaved RoPE in half of a head, and fused projections in checkpoints."""

from dataclasses import replace
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import FusedKeys, RecipeOf
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._rope_config import RopeConfig, RopeMode


def glm_kind(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    """Reads the fields that all GLMs share; arguments as of ``llama_kind``."""
    heads, kv_heads, head_size = heads_of(fields, head_dim_needed=True)
    return llama_kind(
        fields,
        architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=replace(RopeConfig.from_hf(fields, head_size, default_share=0.5), mode=RopeMode.INTERLEAVED),
        qkv_bias=fields.boolean("attention_bias", True),
        **known,
    )


def glm_keys(config: DecoderConfig) -> RecipeOf:
    """Returns recipes for gate and up projections, which are stored in one tensor."""
    return FusedKeys({"mlp.gate_up_proj": [("gate_proj", config.intermediate), ("up_proj", config.intermediate)]})


def _read(fields: ConfigFields) -> DecoderConfig:
    return glm_kind(fields, GLM.architecture)


GLM: Final = Family("GlmForCausalLM", "glm", _read, DecoderLayer, glm_keys)
