"""GLM-4.7-Flash: DeepSeek-V3's latent attention and experts, with layers that are dense or not one by one."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, RecipeOf
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import kinds_of_layers
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._stored_head import layered_head
from transformer_core.layers._rope_config import RopeMode
from transformer_core.models.families._deepseek import grouped_experts, latent_kind

_KINDS: Final = ("dense", "sparse")


def _read(fields: ConfigFields) -> DecoderConfig:
    layers, extra = fields.integer("num_hidden_layers"), fields.integer("num_nextn_predict_layers", 0, minimum=0)
    kinds = kinds_of_layers(fields, _KINDS, (*_KINDS[:1], *_KINDS[1:] * (layers - 1)), "mlp_layer_types")
    experts = grouped_experts(fields, dense=1, scale=1.8, groups=1, chosen_groups=1)
    return latent_kind(
        fields,
        GLM4_MOE_LITE.architecture,
        mode=RopeMode.INTERLEAVED if fields.boolean("rope_interleave", True) else RopeMode.SPLIT_HALF,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        experts=replace(experts, layers=tuple(kind == "sparse" for kind in kinds)),
        extra_layers=extra,
        prediction_heads=extra,
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return layered_head(config.layers, ExpertKeys())


GLM4_MOE_LITE: Final = Family("Glm4MoeLiteForCausalLM", "glm4_moe_lite", _read, DecoderLayer, _stored)
