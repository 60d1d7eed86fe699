"""GLM-4.5 and 4.6 (arXiv:2508.06471): DeepSeek-V3's experts behind a Llama's attention, partly rotated."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, RecipeOf
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._stored_head import layered_head
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.models.families._deepseek import grouped_experts

_ROTATED_SHARE: Final = 0.5  # transformers' default


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields)
    extra = fields.integer("num_nextn_predict_layers", 1, minimum=0)
    return llama_kind(
        fields,
        GLM4_MOE.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(fields, head_size, default_share=_ROTATED_SHARE),
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        qkv_bias=fields.boolean("attention_bias", False),
        qk_norm=fields.boolean("use_qk_norm", False),
        experts=grouped_experts(fields, dense=1, scale=1.0, groups=1, chosen_groups=1),
        extra_layers=extra,
        prediction_heads=extra,
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return layered_head(config.layers, ExpertKeys())


GLM4_MOE: Final = Family("Glm4MoeForCausalLM", "glm4_moe", _read, DecoderLayer, _stored)
