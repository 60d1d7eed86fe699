"""DeepSeek-V3 and R1 (arXiv:2412.19437): latent attention, first layers dense, then grouped and shared experts."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core._rope_config import RopeConfig, RopeMode
from transformer_core._rope_scaling import YarnScaling, yarn_mscale
from transformer_core._routing import Routing, Scoring
from transformer_core.checkpoints import ExpertKeys, RecipeOf
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import llama_kind, whole_rope
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig, LatentConfig
from transformer_core.family._stored_head import layered_head


def _read(fields: ConfigFields) -> DecoderConfig:
    heads = fields.integer("num_attention_heads")
    if fields.integer("num_key_value_heads", heads) != heads:
        fields.refuse("num_key_value_heads", f"num_attention_heads ({heads}): all heads share one compressed vector")
    plain, rotated = fields.integer("qk_nope_head_dim"), fields.integer("qk_rope_head_dim")
    rope = whole_rope(fields, DEEPSEEK_V3.architecture, rotated)
    mode = RopeMode.INTERLEAVED if fields.boolean("rope_interleave", True) else RopeMode.SPLIT_HALF
    biased = fields.boolean("attention_bias", False)
    extra = fields.integer("num_nextn_predict_layers", 0, minimum=0)
    return llama_kind(
        fields,
        DEEPSEEK_V3.architecture,
        heads=heads,
        kv_heads=heads,
        head_size=plain + rotated,
        rope=replace(rope, mode=mode),
        qkv_bias=biased,
        output_bias=biased,
        latent=LatentConfig(
            rank=fields.integer("kv_lora_rank"),
            query_rank=fields.integer("q_lora_rank") if fields.has("q_lora_rank") else None,
            plain_size=plain,
            value_size=fields.integer("v_head_dim"),
            scale=(plain + rotated) ** -0.5 * _temperature(fields, rope),
        ),
        experts=grouped_experts(fields, dense=3, scale=2.5, groups=8, chosen_groups=4),
        extra_layers=extra,
        prediction_heads=extra,
    )


def _temperature(fields: ConfigFields, rope: RopeConfig) -> float:
    """Returns the factor of the scores for a stretched RoPE, besides its attention factor."""
    if not isinstance(rope.scaling, YarnScaling):
        return 1.0
    scaling = fields.object("rope_parameters" if fields.has("rope_parameters") else "rope_scaling")
    if not scaling.has("mscale_all_dim"):
        return 1.0
    return yarn_mscale(rope.scaling.factor, scaling.number("mscale_all_dim", above=-1.0)) ** 2


def grouped_experts(
    fields: ConfigFields, *, dense: int, scale: float, groups: int, chosen_groups: int
) -> ExpertsConfig:
    """Reads experts in groups, with corrected scores.

    Args:
        fields: fields of config.json.
        dense: default of ``first_k_dense_replace``.
        scale: default of ``routed_scaling_factor``.
        groups: default of ``n_group``.
        chosen_groups: default of ``topk_group``.
    """
    fields.choice("scoring_func", ("sigmoid",), "sigmoid")
    fields.choice("topk_method", ("noaux_tc",), "noaux_tc")
    layers, dense = fields.integer("num_hidden_layers"), fields.integer("first_k_dense_replace", dense, minimum=0)
    inner = fields.integer("moe_intermediate_size")
    return ExpertsConfig(
        routing=Routing(
            experts=fields.integer("n_routed_experts"),
            chosen=fields.integer("num_experts_per_tok"),
            scoring=Scoring.SIGMOID,
            normalized=fields.boolean("norm_topk_prob", True),
            scale=fields.number("routed_scaling_factor", scale),
            corrected=True,
            groups=fields.integer("n_group", groups),
            chosen_groups=fields.integer("topk_group", chosen_groups),
        ),
        inner=inner,
        layers=tuple(index >= dense for index in range(layers)),
        shared=inner * fields.integer("n_shared_experts", 1, minimum=0),
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return layered_head(config.layers, ExpertKeys())


DEEPSEEK_V3: Final = Family("DeepseekV3ForCausalLM", "deepseek_v3", _read, DecoderLayer, _stored)
