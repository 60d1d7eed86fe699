"""MiMo-V2-Flash: sinks and more heads of keys in layers with a window, small scaled values, DeepSeek-V3's experts."""

from dataclasses import replace
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, RecipeOf, RenamedParts, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import kinds_of_layers, layer_types, llama_kind, optional_number, windows_by_type
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import LayerSizes
from transformer_core.family._layer_types import FULL, SLIDING, ropes_of_types
from transformer_core.models.families._deepseek import grouped_experts

_SHARE: Final = {"rope_type": "default", "partial_rotary_factor": 0.334}
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    FULL: {**_SHARE, "rope_theta": 5_000_000.0},
    SLIDING: {**_SHARE, "rope_theta": 10_000.0},
}
_PARTS: Final = RenamedParts({".self_attn.sinks": (".self_attn.attention_sink_bias", ".self_attn.sinks")})


def _read(fields: ConfigFields) -> DecoderConfig:
    values = {"head_dim": 192, "v_head_dim": 128, "num_key_value_heads": 4, **fields.values}
    if fields.has("sliding_window_size"):
        values["sliding_window"] = fields.integer("sliding_window_size") + 1
    fields = ConfigFields({**values, "n_shared_experts": 0}, fields.where)
    layers, heads = fields.integer("num_hidden_layers"), fields.integer("num_attention_heads")
    kv_heads, head_size = fields.integer("num_key_value_heads"), fields.integer("head_dim")
    turns = [FULL if index == 0 or not (index + 1) % 6 else SLIDING for index in range(layers)]
    kinds = layer_types(fields, turns)
    if heads % kv_heads or (SLIDING in kinds and heads % (2 * kv_heads)):
        fields.refuse("num_key_value_heads", f"a divisor of num_attention_heads ({heads}), also twice")
    experts = grouped_experts(fields, dense=1, scale=1.0, groups=1, chosen_groups=1)
    sparse = kinds_of_layers(fields, ("dense", "sparse"), ["dense", *["sparse"] * (layers - 1)], "mlp_layer_types")
    sizes: dict[str, Any] = {"head_size": head_size, "intermediate": fields.integer("intermediate_size")}
    scale = optional_number(fields, "attention_value_scale", 0.707)
    return llama_kind(
        fields,
        MIMO_V2_FLASH.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        qkv_bias=fields.boolean("attention_bias", False),
        value_size=fields.integer("v_head_dim"),
        value_scale=1.0 if scale is None else scale,
        layer_sizes=tuple(
            LayerSizes(kv_heads=kv_heads * (2 if kind == SLIDING else 1), sinks=kind == SLIDING, **sizes)
            for kind in kinds
        ),
        windows=windows_by_type(fields, kinds, default_window=129),
        experts=replace(experts, layers=tuple(kind == "sparse" for kind in sparse)),
        **ropes_of_types(fields, kinds, head_size, _DEFAULTS, 0.334),
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return first_of(_PARTS, ExpertKeys())


MIMO_V2_FLASH: Final = Family(
    "MiMoV2FlashForCausalLM", "mimo_v2_flash", _read, DecoderLayer, _stored, ignorable=("model.mtp.*",)
)
