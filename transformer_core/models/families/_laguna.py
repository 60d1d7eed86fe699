"""Laguna: a Qwen3-MoE with softplus gates of attention, numbers of heads by layer, a RoPE per type of layers."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, RecipeOf, RenamedParts, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, kinds_of_layers, layer_types, llama_kind, windows_by_type
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig, LayerSizes
from transformer_core.family._layer_types import FULL, SLIDING, listed, ropes_of_types
from transformer_core.layers._attention_config import OutputGate
from transformer_core.layers._routing import Routing, Scoring

_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    FULL: {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5},
    SLIDING: {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
}
_PARTS: Final = RenamedParts(
    {
        ".mlp.gate.e_score_correction_bias": (
            ".mlp.experts.e_score_correction_bias",
            ".mlp.gate.e_score_correction_bias",
        ),
        ".mlp.shared_experts.": (".mlp.shared_expert.", ".mlp.shared_experts."),
    }
)


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = ConfigFields({"head_dim": 128, **fields.values}, fields.where).renamed(
        {"num_experts": "num_local_experts"}
    )
    heads, kv_heads, head_size = heads_of(fields)
    layers, biased = fields.integer("num_hidden_layers"), fields.boolean("attention_bias", False)
    kinds = layer_types(fields, [FULL] * layers)
    sparse = kinds_of_layers(fields, ("dense", "sparse"), ["dense", *["sparse"] * (layers - 1)], "mlp_layer_types")
    own_heads = listed(
        fields,
        "num_attention_heads_per_layer",
        [heads] * layers,
        f"of multiples of num_key_value_heads ({kv_heads})",
        lambda value: type(value) is int and value > 0 and value % kv_heads == 0,
    )
    if fields.boolean("moe_apply_router_weight_on_input", False):
        fields.refuse("moe_apply_router_weight_on_input", "false, as transformers wants it")
    intermediate = fields.integer("intermediate_size")
    sizes: dict[str, Any] = {"kv_heads": kv_heads, "head_size": head_size, "intermediate": intermediate}
    cap = fields.number("moe_router_logit_softcapping", 0.0, above=-1e-30)
    routing = Routing(
        experts=fields.integer("num_experts", 256),
        chosen=fields.integer("num_experts_per_tok", 8),
        scoring=Scoring.SIGMOID,
        scale=fields.number("moe_routed_scaling_factor", 1.0),
        corrected=True,
        softcap=cap or None,
    )
    return llama_kind(
        fields,
        LAGUNA.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        gate=_gate(fields),
        layer_sizes=tuple(LayerSizes(**sizes, heads=count) for count in own_heads),
        windows=windows_by_type(fields, kinds, default_window=512),
        experts=ExpertsConfig(
            routing=routing,
            inner=fields.integer("moe_intermediate_size", 512),
            layers=tuple(kind == "sparse" for kind in sparse),
            shared=fields.integer("shared_expert_intermediate_size", 512),
        ),
        **ropes_of_types(fields, kinds, head_size, _DEFAULTS, 1.0),
    )


def _gate(fields: ConfigFields) -> OutputGate:
    """Reads ``gating``: true and ``per-head`` are a number per head; anything else is one per dim in transformers."""
    gating = fields.values.get("gating", True)
    if gating not in (True, "per-head", "per-element", "per_element", False):
        fields.refuse("gating", "true, per-head or per-element")
    return OutputGate.HEAD_SOFTPLUS if gating in (True, "per-head") else OutputGate.SOFTPLUS


def _stored(config: DecoderConfig) -> RecipeOf:
    return first_of(_PARTS, ExpertKeys())


LAGUNA: Final = Family("LagunaForCausalLM", "laguna", _read, DecoderLayer, _stored)
