"""Aria, text (arXiv:2410.05993): a Llama with experts in every layer beside shared ones."""

from typing import Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import InputMajor, Recipe, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._routing import Routing


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    inner, biased = fields.integer("intermediate_size", 4096), fields.boolean("attention_bias", False)
    if fields.boolean("mlp_bias", False):
        fields.refuse("mlp_bias", "false: biases of the shared experts are not built")
    if fields.values.get("hidden_act", "silu") not in ("silu", "swish"):
        fields.refuse("hidden_act", "silu: routed experts always take it, and one activation for all experts is built")
    routing = Routing(experts=fields.integer("moe_num_experts", 8), chosen=fields.integer("moe_topk", 2))
    return llama_kind(
        fields,
        ARIA_TEXT.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=biased,
        output_bias=biased,
        experts=ExpertsConfig(
            routing=routing,
            inner=inner,
            layers=(True,) * fields.integer("num_hidden_layers"),
            shared=inner * fields.integer("moe_num_shared_experts", 2),
        ),
    )


def _stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """Returns the recipe of a router or of experts, whose matrices are stored input-major."""
    above, _, path = name.partition(".mlp.")
    if path == "gate.weight":
        return Stored(f"{above}.mlp.router.weight", shape)
    if not path.startswith("experts."):
        return None
    if path == "experts.down_proj":
        return InputMajor(f"{above}.mlp.experts.fc2.weight", shape, 0, shape[1])
    start = shape[1] if path == "experts.up_proj" else 0
    return InputMajor(f"{above}.mlp.experts.fc1.weight", shape, start, 2 * shape[1])


ARIA_TEXT: Final = Family("AriaTextForCausalLM", "aria_text", _read, DecoderLayer, lambda config: _stored)
