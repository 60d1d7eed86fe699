"""Granite 4: Mamba-2 in most layers, attention mostly without RoPE, shared experts beside routed ones or alone."""

import re
from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Cut, Recipe, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, kinds_of_layers, whole_rope
from transformer_core.family._layer import hybrid_layer
from transformer_core.family._layer_configs import ExpertsConfig, Mamba2Config
from transformer_core.family._mamba_fields import mamba_sizes, no_rope
from transformer_core.layers._routing import Routing
from transformer_core.models.families._granite import granite_kind

_STATE: Final = ("mamba", "linear_attention")  # as transformers 4 and 5 call them
_KINDS: Final = (*_STATE, "attention", "full_attention")
_PART: Final = re.compile(r"(.*\.)mlp\.(experts\.)?(?:shared_experts\.)?(gate|up|down)_proj(?:\.weight)?")


def _read(fields: ConfigFields) -> DecoderConfig:
    layers, hidden = fields.integer("num_hidden_layers"), fields.integer("hidden_size")
    head_size = heads_of(fields, kv_heads_default=True)[2]
    name = "layers_block_type" if fields.has("layers_block_type") else "layer_types"
    stateful = tuple(kind in _STATE for kind in kinds_of_layers(fields, _KINDS, _STATE[:1] * layers, name))
    mixer = None
    if any(stateful):
        inner = hidden * fields.integer("mamba_expand", 2)
        sizes = mamba_sizes(fields, inner, output_bias=fields.boolean("mamba_proj_bias", False))
        mixer = Mamba2Config(layers=stateful, sizes=sizes)
    rotated = fields.values.get("position_embedding_type") == "rope"
    return granite_kind(
        fields,
        GRANITE_HYBRID.architecture,
        mixer=mixer,
        **({"rope": whole_rope(fields, GRANITE_HYBRID.architecture, head_size)} if rotated else no_rope(layers)),
        **_feed_forward(fields),
    )


def _feed_forward(fields: ConfigFields) -> dict[str, Any]:
    """Returns the shared experts as dense feed-forward, or beside routed ones."""
    shared = fields.integer("shared_intermediate_size", 1024)
    if not fields.integer("num_local_experts", 8, minimum=0):
        return {"intermediate": shared}
    return {"experts": granite_experts(fields, shared)}


def granite_experts(fields: ConfigFields, shared: int) -> ExpertsConfig:
    """Reads the routed experts, which are in every layer.

    Args:
        fields: fields of config.json.
        shared: F of the experts that every token goes through; 0 without.
    """
    routing = Routing(experts=fields.integer("num_local_experts", 8), chosen=fields.integer("num_experts_per_tok", 2))
    layers = (True,) * fields.integer("num_hidden_layers")
    return ExpertsConfig(routing=routing, inner=fields.integer("intermediate_size"), layers=layers, shared=shared)


def granite_stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """Returns the recipe of a router or a feed-forward, with gate and up projections stored as one."""
    if name.endswith(".mlp.gate.weight"):
        return Stored(name.replace("mlp.gate", "block_sparse_moe.router.layer"), shape)
    match = _PART.fullmatch(name)
    if match is None:
        return None
    module = f"{match[1]}{'block_sparse_moe' if match[2] else 'shared_mlp'}"
    if match[3] == "down":
        return Stored(f"{module}.output_linear.weight", shape)
    *experts, inner, size = shape
    start = inner if match[3] == "up" else 0
    return Cut(f"{module}.input_linear.weight", (*experts, 2 * inner, size), len(experts), start, start + inner)


GRANITE_HYBRID: Final = Family(
    "GraniteMoeHybridForCausalLM", "granitemoehybrid", _read, hybrid_layer, lambda config: granite_stored
)
