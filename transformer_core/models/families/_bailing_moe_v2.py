"""Ling and Ring 2 (BailingMoeV2): a GLM-4.5 with normed queries and keys, under the names of the first Ling."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.models.families._deepseek import grouped_experts
from transformer_core.models.families._deepseek_moe import bailing_keys

_NAMES: Final = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"}
_ROTATED_SHARE: Final = 0.5
_SHARED: Final = "moe_shared_expert_intermediate_size"


def _read(fields: ConfigFields) -> DecoderConfig:
    fields.choice("score_function", ("sigmoid",), "sigmoid")
    if not fields.boolean("moe_router_enable_expert_bias", True):
        fields.refuse("moe_router_enable_expert_bias", "true: routers without a correction are not built")
    if fields.boolean("use_rmsnorm", True) is not True:
        fields.refuse("use_rmsnorm", "true: layer norms are not built")
    inner, shared = fields.integer("moe_intermediate_size"), fields.integer("num_shared_experts", 1, minimum=0)
    if fields.integer(_SHARED, inner) != inner and shared:
        fields.refuse(_SHARED, f"moe_intermediate_size ({inner}), or no such field")
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    extra = fields.integer("num_nextn_predict_layers", 0, minimum=0)
    return llama_kind(
        fields,
        BAILING_MOE_V2.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(fields, head_size, default_share=_ROTATED_SHARE),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=fields.boolean("use_qkv_bias", False),
        output_bias=fields.boolean("use_bias", False),
        qk_norm=fields.boolean("use_qk_norm", True),
        experts=grouped_experts(fields.renamed(_NAMES), dense=0, scale=1.0, groups=1, chosen_groups=1),
        extra_layers=extra,
    )


BAILING_MOE_V2: Final = Family("BailingMoeV2ForCausalLM", "bailing_moe", _read, DecoderLayer, bailing_keys)
