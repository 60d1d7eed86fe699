"""FlexOlmo (arXiv:2507.07024): an OLMo-2 with experts in every layer."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.family._other_layers import PostNormLayer
from transformer_core.layers._routing import Routing
from transformer_core.models.families._olmo2 import olmo_kind


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = ConfigFields({"rms_norm_eps": 1e-6, "rope_theta": 5e5, **fields.values}, fields.where)
    fields = fields.renamed({"num_experts": "num_local_experts"})
    layers = fields.integer("num_hidden_layers")
    routing = Routing(
        experts=fields.integer("num_experts", 7),
        chosen=fields.integer("num_experts_per_tok", 5),
        normalized=fields.boolean("norm_topk_prob", False),
    )
    experts = ExpertsConfig(routing=routing, inner=fields.integer("intermediate_size"), layers=(True,) * layers)
    return olmo_kind(fields, FLEX_OLMO.architecture, experts=experts)


FLEX_OLMO: Final = Family("FlexOlmoForCausalLM", "flex_olmo", _read, PostNormLayer, lambda config: ExpertKeys())
