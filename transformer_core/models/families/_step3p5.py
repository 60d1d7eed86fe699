"""Step 3.5 Flash: a Laguna with sigmoid gates of heads, zero-centred norms, and more heads in layers with a window."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RecipeOf, RenamedParts
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, kinds_of_layers, layer_types, llama_kind, windows_by_type
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig, LayerSizes
from transformer_core.family._layer_types import FULL, SLIDING, ropes_of_types
from transformer_core.layers._attention_config import OutputGate
from transformer_core.layers._routing import Routing, Scoring

_NAMES: Final = {
    "num_key_value_heads": "num_attention_groups",
    "n_routed_experts": "moe_num_experts",
    "num_experts_per_tok": "moe_top_k",
    "share_expert_dim": "share_expert_dims",
}
_LIMITS: Final = ("swiglu_limits", "swiglu_limits_shared")
_OTHER: Final = "attention_other_setting"
_FIRST_SPARSE: Final = 3
_BASE: Final = 10_000.0
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {FULL: {"rope_theta": _BASE}, SLIDING: {"rope_theta": _BASE}}
_PARTS: Final = RenamedParts(
    {
        ".mlp.gate.weight": (".moe.gate.weight", ".mlp.gate.weight"),
        ".mlp.gate.e_score_correction_bias": (".moe.router_bias", ".mlp.gate.e_score_correction_bias"),
        ".mlp.experts.gate_proj": (".moe.gate_proj.weight",),
        ".mlp.experts.up_proj": (".moe.up_proj.weight",),
        ".mlp.experts.down_proj": (".moe.down_proj.weight",),
        ".mlp.shared_experts.": (".share_expert.", ".mlp.shared_experts."),
    }
)


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = fields.renamed(_NAMES)
    for name in _LIMITS:
        limits = fields.values.get(name)
        if isinstance(limits, list) and any(limits):
            fields.refuse(name, "null or zeros: bounds of gates are not built")
    heads, kv_heads, head_size = heads_of(ConfigFields({"head_dim": 128, **fields.values}, fields.where))
    layers, biased = fields.integer("num_hidden_layers"), fields.boolean("attention_bias", False)
    kinds = layer_types(fields, [FULL] * layers)
    fields = ConfigFields({**fields.values, "layer_types": kinds}, fields.where)
    more = _sliding_heads(fields, heads, kv_heads)
    inner, sparse = fields.integer("intermediate_size"), _sparse(fields)
    routing = Routing(
        experts=fields.integer("n_routed_experts", 288),
        chosen=fields.integer("num_experts_per_tok", 8),
        scoring=Scoring.SIGMOID,
        scale=fields.number("moe_router_scaling_factor", 1.0),
        corrected=True,
    )
    sizes: dict[str, Any] = {"kv_heads": kv_heads, "head_size": head_size, "intermediate": inner}
    return llama_kind(
        fields,
        STEP3P5.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        scale=fields.number("query_pre_attn_scalar", float(head_size)) ** -0.5,
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        zero_centred=True,
        gate=OutputGate.HEAD_SIGMOID,
        layer_sizes=tuple(LayerSizes(**sizes, heads=more if kind == SLIDING else heads) for kind in kinds),
        windows=windows_by_type(fields, kinds),
        experts=ExpertsConfig(
            routing=routing,
            inner=fields.integer("moe_intermediate_size", 1280),
            layers=sparse,
            shared=fields.integer("share_expert_dim", 1280),
        ),
        extra_layers=fields.integer("num_nextn_predict_layers", 0, minimum=0),
        **ropes_of_types(_roped(fields, kinds), kinds, head_size, _DEFAULTS, 1.0),
    )


def _sliding_heads(fields: ConfigFields, heads: int, kv_heads: int) -> int:
    """Reads N of layers with a window, under transformers' name or the authors'."""
    own, name = fields, "num_sliding_attention_heads"
    if not fields.has(name) and fields.has(_OTHER):
        own, name = fields.object(_OTHER), "num_attention_heads"
        if own.integer("num_attention_groups", kv_heads) != kv_heads:
            own.refuse("num_attention_groups", f"that of all layers ({kv_heads})")
    more = own.integer(name, heads)
    if more % kv_heads:
        own.refuse(name, f"a multiple of num_key_value_heads ({kv_heads})")
    return more


def _sparse(fields: ConfigFields) -> tuple[bool, ...]:
    """Reads which layers have experts: a kind for each, or their numbers."""
    layers, numbers = fields.integer("num_hidden_layers"), fields.values.get("moe_layers_enum")
    if fields.has("mlp_layer_types") or numbers is None:
        default = ["dense" if index < _FIRST_SPARSE else "sparse" for index in range(layers)]
        values = fields.values.get("mlp_layer_types")
        cut = {**fields.values, "mlp_layer_types": values[:layers] if isinstance(values, list) else values}
        kinds = kinds_of_layers(ConfigFields(cut, fields.where), ("dense", "sparse"), default, "mlp_layer_types")
        return tuple(kind == "sparse" for kind in kinds)
    listed = numbers.split(",") if isinstance(numbers, str) else numbers
    if not isinstance(listed, list) or not all(str(number).strip().isdigit() for number in listed):
        fields.refuse("moe_layers_enum", "numbers of layers, as a list or between commas")
    chosen = {int(number) for number in listed}
    return tuple(index in chosen for index in range(layers))


def _roped(fields: ConfigFields, kinds: list[str]) -> ConfigFields:
    """Returns the fields with a RoPE for each type of layers, of numbers for each layer as the authors have them."""
    rope = fields.values.get("rope_parameters")
    if isinstance(rope, dict) and all(isinstance(rope.get(kind), dict) for kind in kinds):
        return fields
    bases, shares = fields.values.get("rope_theta", _BASE), fields.values.get("partial_rotary_factors")
    scaling = fields.values.get("rope_scaling")
    ropes: dict[str, dict[str, Any]] = {}
    for index, kind in enumerate(kinds):
        own = {"rope_type": "default", "rope_theta": _of_layer(fields, "rope_theta", bases, index)}
        if shares is not None:
            own["partial_rotary_factor"] = _of_layer(fields, "partial_rotary_factors", shares, index)
        if ropes.setdefault(kind, own) != own:
            fields.refuse("rope_theta", f"one number, and one share of heads, for all layers of type {kind}")
    if isinstance(scaling, dict) and FULL in ropes:
        ropes[FULL] |= {"rope_type": scaling.get("type"), **scaling}
    values = {name: value for name, value in fields.values.items() if name not in ("rope_theta", "rope_scaling")}
    return ConfigFields({**values, "rope_parameters": ropes}, fields.where)


def _of_layer(fields: ConfigFields, name: str, values: Any, index: int) -> Any:
    if isinstance(values, list) and len(values) <= index:
        fields.refuse(name, "a number, or one for each layer")
    return values[index] if isinstance(values, list) else values


def _stored(config: DecoderConfig) -> RecipeOf:
    return _PARTS


STEP3P5: Final = Family("Step3p5ForCausalLM", "step3p5", _read, DecoderLayer, _stored)
