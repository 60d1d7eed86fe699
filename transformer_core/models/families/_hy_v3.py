"""Hunyuan 3: a Qwen3's attention, a dense layer, then DeepSeek-V3's experts without groups."""

from typing import Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, Recipe, RecipeOf, Stored, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, kinds_of_layers, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._routing import Routing, Scoring

_STORED: Final = {
    ".mlp.gate.weight": ".mlp.router.gate.weight",
    ".mlp.gate.e_score_correction_bias": ".mlp.expert_bias",
    ".mlp.shared_experts.": ".mlp.shared_mlp.",
}
_BASE: Final = 11_158_840.0  # transformers' default


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = ConfigFields({"head_dim": 128, "rope_theta": _BASE, **fields.values}, fields.where)
    fields = fields.renamed({"num_experts": "num_local_experts"})
    heads, kv_heads, head_size = heads_of(fields)
    layers, biased = fields.integer("num_hidden_layers"), fields.boolean("attention_bias", False)
    sparse = kinds_of_layers(fields, ("dense", "sparse"), ["dense", *["sparse"] * (layers - 1)], "mlp_layer_types")
    inner = fields.integer("moe_intermediate_size", 1536)
    routing = Routing(
        experts=fields.integer("num_experts", 192),
        chosen=fields.integer("num_experts_per_tok", 8),
        scoring=Scoring.SIGMOID,
        scale=fields.number("router_scaling_factor", 2.826),
        corrected=True,
    )
    return llama_kind(
        fields,
        HY_V3.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        experts=ExpertsConfig(
            routing=routing,
            inner=inner,
            layers=tuple(kind == "sparse" for kind in sparse),
            shared=inner * fields.integer("num_shared_experts", 1),
        ),
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    """Returns recipes under the published names of the router and the shared experts."""

    def own(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        stored = name
        for part, key in _STORED.items():
            stored = stored.replace(part, key)
        return None if stored == name or source.has(name) else Stored(stored, shape)

    return first_of(own, ExpertKeys(correction="e_score_correction_bias"))


HY_V3: Final = Family("HYV3ForCausalLM", "hy_v3", _read, DecoderLayer, _stored)
