"""Granite with windows in most layers, sinks in attention, and a RoPE for each layer, dense or with experts."""

from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, Stored, fused_experts
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, layer_types, whole_rope, windows_by_type
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._rope_config import RopeConfig, RopeKind
from transformer_core.models.families._granite import granite_kind
from transformer_core.models.families._granitemoehybrid import granite_experts, granite_stored

_WINDOW: Final = 128
_GREATEST: Final = 1e300  # base of a RoPE
_ROUTER: Final = "model.layers.0.block_sparse_moe.router.layer.weight"


def _read(fields: ConfigFields) -> DecoderConfig:
    biased = fields.boolean("mlp_bias", False)
    return granite_kind(fields, GRANITE_SWA.architecture, mlp_bias=biased, sinks=True, **_layers(fields))


def _read_experts(fields: ConfigFields) -> DecoderConfig:
    shared = fields.integer("shared_intermediate_size", 0, minimum=0)
    experts = granite_experts(fields, shared)
    return granite_kind(fields, GRANITE_MOE_SWA.architecture, experts=experts, sinks=True, **_layers(fields))


def _layers(fields: ConfigFields) -> dict[str, Any]:
    """Reads windows and the base of each layer's RoPE, of which there are two at most; 0 is no RoPE."""
    layers, head_size = fields.integer("num_hidden_layers"), heads_of(fields, kv_heads_default=True)[2]
    kinds = layer_types(fields, ["sliding_attention" if index % 4 else "full_attention" for index in range(layers)])
    rope = whole_rope(fields, GRANITE_SWA.architecture, head_size)
    bases = fields.values.get("layer_rope_theta")
    if bases is None:
        bases = [rope.base] * layers
    expected = f"a list of {layers} (num_hidden_layers) numbers that are 0 or above 1, two of these at most"
    if not isinstance(bases, list) or len(bases) != layers or any(type(base) not in (int, float) for base in bases):
        fields.refuse("layer_rope_theta", expected)
    known = list(dict.fromkeys(base for base in bases if base))
    if len(known) > 2 or any(not 1 < base < _GREATEST for base in known):
        fields.refuse("layer_rope_theta", expected)
    ropes = [_with_base(fields, head_size, float(base)) for base in known] or [rope]
    order = dict(zip(known, (RopeKind.MODEL, RopeKind.LOCAL), strict=False))
    return {
        "tied": fields.boolean("tie_word_embeddings", True),
        "windows": windows_by_type(fields, kinds, default_window=_WINDOW),
        "rope": ropes[0],
        "local_rope": ropes[1] if len(ropes) > 1 else None,
        "rope_kinds": tuple(order.get(base, RopeKind.NONE) for base in bases),
    }


def _with_base(fields: ConfigFields, head_size: int, base: float) -> RopeConfig:
    values = {**fields.values, "rope_theta": base}
    if fields.has("rope_parameters"):
        values["rope_parameters"] = {**fields.object("rope_parameters").values, "rope_theta": base}
    return whole_rope(ConfigFields(values, fields.where), GRANITE_SWA.architecture, head_size)


def _stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """Returns the recipe of a router or a feed-forward; experts have Granite 3's names or Mixtral's."""
    if ".mlp.shared_experts." in name or source.has(_ROUTER):
        return granite_stored(name, shape, source)
    stored = name.replace(".mlp.gate.", ".block_sparse_moe.router.").replace(
        ".mlp.experts.", ".block_sparse_moe.experts."
    )
    if stored == name:
        return None
    return fused_experts(stored, shape, source) or Stored(stored, shape)


GRANITE_SWA: Final = Family("GraniteSWAForCausalLM", "granite_swa", _read, DecoderLayer)
GRANITE_MOE_SWA: Final = Family(
    "GraniteMoeSWAForCausalLM", "granitemoe_swa", _read_experts, DecoderLayer, lambda config: _stored
)
