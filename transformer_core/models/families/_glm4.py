"""GLM-4-0414: a GLM with four norms per layer."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RecipeOf, RenamedKeys, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._other_layers import SandwichLayer
from transformer_core.models.families._glm import glm_keys, glm_kind

_NORMS: Final = {
    "post_attention_layernorm": "post_self_attn_layernorm",
    "pre_feedforward_layernorm": "post_attention_layernorm",
    "post_feedforward_layernorm": "post_mlp_layernorm",
}


def _read(fields: ConfigFields) -> DecoderConfig:
    return glm_kind(fields, GLM4.architecture)


def _stored(config: DecoderConfig) -> RecipeOf:
    return first_of(glm_keys(config), RenamedKeys(_NORMS))


GLM4: Final = Family("Glm4ForCausalLM", "glm4", _read, SandwichLayer, _stored)
