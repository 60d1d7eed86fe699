"""Latent attention and grouped experts, which DeepSeek's models have, and others after them."""

from dataclasses import replace
from typing import Any

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig
from transformer_core.family._fields import llama_kind, whole_rope
from transformer_core.family._layer_configs import ExpertsConfig, LatentConfig
from transformer_core.layers._indexer import IndexerConfig
from transformer_core.layers._rope_config import RopeConfig, RopeMode
from transformer_core.layers._rope_scaling import YarnScaling, yarn_mscale
from transformer_core.layers._routing import Routing, Scoring


def latent_kind(
    fields: ConfigFields,
    architecture: str,
    *,
    mode: RopeMode = RopeMode.INTERLEAVED,
    indexer: IndexerConfig | None = None,
    **known: Any,
) -> DecoderConfig:
    """Reads the fields of a decoder with latent attention; arguments as of ``llama_kind``.

    Args:
        fields: fields of config.json.
        architecture: architecture of the family.
        mode: layout of the rotated pairs.
        indexer: choice of the keys that a query sees; all if None.
        **known: attributes of ``DecoderConfig`` that the family reads itself.
    """
    heads = fields.integer("num_attention_heads")
    if fields.integer("num_key_value_heads", heads) != heads:
        fields.refuse("num_key_value_heads", f"num_attention_heads ({heads}): all heads share one compressed vector")
    plain, rotated = fields.integer("qk_nope_head_dim"), fields.integer("qk_rope_head_dim")
    rope = whole_rope(fields, architecture, rotated)
    biased = fields.boolean("attention_bias", False)
    return llama_kind(
        fields,
        architecture,
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
            indexer=indexer,
        ),
        **known,
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
