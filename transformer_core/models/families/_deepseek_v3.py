"""DeepSeek-V3 and R1 (arXiv:2412.19437): latent attention, first layers dense, then grouped and shared experts."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, RecipeOf
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._stored_head import layered_head
from transformer_core.layers._rope_config import RopeMode
from transformer_core.models.families._deepseek import grouped_experts, latent_kind


def _read(fields: ConfigFields) -> DecoderConfig:
    extra = fields.integer("num_nextn_predict_layers", 0, minimum=0)
    return latent_kind(
        fields,
        DEEPSEEK_V3.architecture,
        mode=RopeMode.INTERLEAVED if fields.boolean("rope_interleave", True) else RopeMode.SPLIT_HALF,
        experts=grouped_experts(fields, dense=3, scale=2.5, groups=8, chosen_groups=4),
        extra_layers=extra,
        prediction_heads=extra,
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return layered_head(config.layers, ExpertKeys())


DEEPSEEK_V3: Final = Family("DeepseekV3ForCausalLM", "deepseek_v3", _read, DecoderLayer, _stored)
