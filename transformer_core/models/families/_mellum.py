"""Mellum 2: a Qwen3-MoE with windows in some layers, and another RoPE in these."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import (
    heads_of,
    kinds_of_layers,
    layer_types,
    llama_kind,
    whole_rope,
    windows_by_type,
)
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._rope_config import RopeConfig, RopeKind
from transformer_core.layers._routing import Routing

_BASES: Final = {"full_attention": 5e5, "sliding_attention": 1e4}  # transformers' defaults


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = ConfigFields({"head_dim": 128, **fields.values}, fields.where).renamed(
        {"num_experts": "num_local_experts"}
    )
    heads, kv_heads, head_size = heads_of(fields)
    layers, biased = fields.integer("num_hidden_layers"), fields.boolean("attention_bias", False)
    kinds = layer_types(fields, ["full_attention"] * layers)
    sparse = kinds_of_layers(fields, ("dense", "sparse"), ["sparse"] * layers, "mlp_layer_types")
    routing = Routing(
        experts=fields.integer("num_experts", 64),
        chosen=fields.integer("num_experts_per_tok", 8),
        normalized=fields.boolean("norm_topk_prob", True),
    )
    ropes = {kind: _rope(fields, kind, head_size) for kind in _BASES if kind in kinds}
    return llama_kind(
        fields,
        MELLUM.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        rope=ropes.get("full_attention") or ropes["sliding_attention"],
        local_rope=ropes["sliding_attention"] if len(ropes) > 1 else None,
        rope_kinds=tuple(
            RopeKind.LOCAL if kind == "sliding_attention" and len(ropes) > 1 else RopeKind.MODEL for kind in kinds
        ),
        windows=windows_by_type(fields, kinds, default_window=1024),
        experts=ExpertsConfig(
            routing=routing,
            inner=fields.integer("moe_intermediate_size", 896),
            layers=tuple(kind == "sparse" for kind in sparse),
        ),
    )


def _rope(fields: ConfigFields, kind: str, head_size: int) -> RopeConfig:
    """Reads the RoPE of a kind of layers."""
    values: dict[str, Any] = {**fields.values, "rope_parameters": {"rope_theta": _BASES[kind]}}
    if fields.has("rope_parameters"):
        of_kind = fields.object("rope_parameters").object(kind)
        if not of_kind.boolean("truncate", True):
            of_kind.refuse("truncate", "true, or no such field: transformers does not read it of a kind of layers")
        values["rope_parameters"] = dict(of_kind.values)
    return whole_rope(ConfigFields(values, fields.where), MELLUM.architecture, head_size)


MELLUM: Final = Family(
    "MellumForCausalLM", "mellum", _read, DecoderLayer, lambda config: ExpertKeys(), ignorable=("mtp.*",)
)
