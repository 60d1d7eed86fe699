"""AFMoE (Trinity): four norms per layer, gated attention with windows by turns, sigmoid experts beside shared ones."""

from typing import Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, Paired, Recipe, RecipeOf, RenamedKeys, Stored, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, layer_types, llama_kind, windows_by_type
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.family._other_layers import SandwichLayer
from transformer_core.layers._rope_config import RopeKind
from transformer_core.layers._routing import Routing, Scoring

_SLIDING: Final = "sliding_attention"
_NORMS: Final = {"pre_feedforward_layernorm": "pre_mlp_layernorm", "post_feedforward_layernorm": "post_mlp_layernorm"}
_ROUTER: Final = {"gate.weight": "router.gate.weight", "gate.e_score_correction_bias": "expert_bias"}


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(
        ConfigFields({"head_dim": 128, **fields.values}, fields.where), kv_heads_default=True
    )
    layers, dense = fields.integer("num_hidden_layers"), fields.integer("num_dense_layers", 1, minimum=0)
    if fields.boolean("attention_bias", False):
        fields.refuse("attention_bias", "false: the gate of attention has no bias")
    every, inner = fields.integer("global_attn_every_n_layers", 4), fields.integer("moe_intermediate_size", 1408)
    kinds = layer_types(fields, [_SLIDING if (index + 1) % every else "full_attention" for index in range(layers)])
    routing = Routing(
        experts=fields.integer("num_experts", 64),
        chosen=fields.integer("num_experts_per_tok", 6),
        scoring=Scoring.SIGMOID,
        scale=fields.number("route_scale", 1.0),
        corrected=True,
    )
    return llama_kind(
        fields,
        AFMOE.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        gated=True,
        qk_norm=True,
        rope_kinds=tuple(RopeKind.MODEL if kind == _SLIDING else RopeKind.NONE for kind in kinds),
        windows=windows_by_type(fields, kinds, default_window=1024),
        embedding_scale=fields.integer("hidden_size") ** 0.5 if fields.boolean("mup_enabled", False) else 1.0,
        experts=ExpertsConfig(
            routing=routing,
            inner=inner,
            layers=tuple(index >= dense for index in range(layers)),
            shared=inner * fields.integer("num_shared_experts", 2, minimum=0),
        ),
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    """Returns recipes: a head's gate follows its query in the model, and is a projection of its own in the file."""

    def own(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        above, _, path = name.partition(".mlp.")
        if path in _ROUTER:
            return Stored(f"{above}.mlp.{_ROUTER[path]}", shape)
        if name.endswith("self_attn.q_proj.weight"):
            return Paired(name, name.replace("q_proj", "gate_proj"), shape, config.heads)
        return None

    return first_of(own, RenamedKeys(_NORMS), ExpertKeys())


AFMOE: Final = Family("AfmoeForCausalLM", "afmoe", _read, SandwichLayer, _stored)
