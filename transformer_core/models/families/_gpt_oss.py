"""gpt-oss (arXiv:2508.10925): sinks in attention, windows by turns, experts with biases and a clamped gate."""

import re
from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import EveryOther, Recipe, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, whole_rope, windows_by_type
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._moe import ClampedGate, Routing

_ALPHA: Final = 1.702  # transformers' defaults
_LIMIT: Final = 7.0
_WINDOW: Final = 128
_ROPE_BASE: Final = 150000.0
_ROPE: Final[dict[str, Any]] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}
_PART: Final = re.compile(
    r"(?P<mlp>.*\.mlp\.)(gate\.(?P<router>weight|bias)|experts\.(?P<name>gate|up|down)_proj(?P<bias>_bias)?)"
)


def _read(fields: ConfigFields) -> DecoderConfig:
    if not fields.has("rope_parameters") and not fields.has("rope_scaling"):
        fields = ConfigFields({**fields.values, "rope_parameters": _ROPE}, fields.where)
    layers = fields.integer("num_hidden_layers")
    turns = ["full_attention" if index % 2 else "sliding_attention" for index in range(layers)]
    biased = fields.boolean("attention_bias", True)
    routing = Routing(
        experts=fields.integer("num_local_experts"), chosen=fields.integer("num_experts_per_tok"), biased=True
    )
    gate = ClampedGate(fields.number("swiglu_alpha", _ALPHA), fields.number("swiglu_limit", _LIMIT))
    inner = fields.integer("intermediate_size")
    heads, kv_heads, head_size = heads_of(fields, head_dim_needed=True)
    return llama_kind(
        fields,
        GPT_OSS.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=whole_rope(fields, GPT_OSS.architecture, head_size, default_base=_ROPE_BASE),
        windows=windows_by_type(fields, turns, default_window=_WINDOW),
        qkv_bias=biased,
        output_bias=biased,
        sinks=True,
        experts=ExpertsConfig(routing=routing, inner=inner, layers=(True,) * layers, biased=True, clamped=gate),
    )


def _stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """Returns the recipe of a parameter of a router, or of experts, which are stored input-major."""
    match = _PART.fullmatch(name)
    if match is None:
        return None
    if match["router"]:
        return Stored(f"{match['mlp']}router.{match['router']}", shape)
    first, step = {"gate": (0, 2), "up": (1, 2), "down": (0, 1)}[match["name"]]
    key = f"{match['mlp']}experts.{'down' if match['name'] == 'down' else 'gate_up'}_proj{match['bias'] or ''}"
    return EveryOther(key, shape, first, step)


GPT_OSS: Final = Family("GptOssForCausalLM", "gpt_oss", _read, DecoderLayer, lambda config: _stored)
