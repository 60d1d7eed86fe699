"""LFM2-MoE: LFM2 with mixtures of experts after its first layers."""

from typing import Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, Recipe, Stored, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import hybrid_layer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._routing import Routing, Scoring
from transformer_core.models.families._lfm2 import LFM2_KEYS, lfm2_kind


def _read(fields: ConfigFields) -> DecoderConfig:
    dense = fields.integer("num_dense_layers", 2, minimum=0)
    routing = Routing(
        experts=fields.integer("num_experts", 32),
        chosen=fields.integer("num_experts_per_tok", 4),
        scoring=Scoring.SIGMOID,
        normalized=fields.boolean("norm_topk_prob", True),
        eps=1e-6,
        scale=fields.number("routed_scaling_factor", 1.0),
        corrected=fields.boolean("use_expert_bias", True),
    )
    experts = ExpertsConfig(
        routing=routing,
        inner=fields.integer("moe_intermediate_size"),
        layers=tuple(index >= dense for index in range(fields.integer("num_hidden_layers"))),
    )
    return lfm2_kind(fields, LFM2_MOE.architecture, None, experts=experts)


def _correction(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """Returns the recipe of the bias that corrects the choice of experts, which stands beside the router."""
    if not name.endswith(".e_score_correction_bias"):
        return None
    return Stored(name.replace("mlp.gate.e_score_correction_bias", "feed_forward.expert_bias"), shape)


_KEYS: Final = first_of(_correction, ExpertKeys("feed_forward", "w1", "w3", "w2"), LFM2_KEYS)
LFM2_MOE: Final = Family("Lfm2MoeForCausalLM", "lfm2_moe", _read, hybrid_layer, lambda config: _KEYS)
