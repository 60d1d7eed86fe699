"""OLMoE (arXiv:2409.02060): a Llama with experts in every layer, and norms over all heads of queries and keys."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import optional_number
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._routing import Routing
from transformer_core.models.families._olmo2 import olmo_kind


def _read(fields: ConfigFields) -> DecoderConfig:
    layers = fields.integer("num_hidden_layers")
    routing = Routing(
        experts=fields.integer("num_experts", 64),
        chosen=fields.integer("num_experts_per_tok", 8),
        normalized=fields.boolean("norm_topk_prob", False),
    )
    experts = ExpertsConfig(routing=routing, inner=fields.integer("intermediate_size"), layers=(True,) * layers)
    clip = optional_number(fields, "clip_qkv", None)
    return olmo_kind(fields, OLMOE.architecture, qkv_clip=clip, experts=experts)


OLMOE: Final = Family("OlmoeForCausalLM", "olmoe", _read, DecoderLayer, lambda config: ExpertKeys())
