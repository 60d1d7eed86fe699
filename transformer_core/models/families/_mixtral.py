"""Mixtral (arXiv:2401.04088): a Mistral with mixtures of experts in every layer."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, one_window, whole_rope
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._routing import Routing

_ROPE_BASE: Final = 1e6  # transformers' default


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields)
    layers = fields.integer("num_hidden_layers")
    routing = Routing(experts=fields.integer("num_local_experts"), chosen=fields.integer("num_experts_per_tok"))
    return llama_kind(
        fields,
        MIXTRAL.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=whole_rope(fields, MIXTRAL.architecture, head_size, default_base=_ROPE_BASE),
        windows=one_window(fields, default=None),
        experts=ExpertsConfig(routing=routing, inner=fields.integer("intermediate_size"), layers=(True,) * layers),
    )


_KEYS: Final = ExpertKeys(layer="block_sparse_moe", gate="w1", up="w3", down="w2")
MIXTRAL: Final = Family("MixtralForCausalLM", "mixtral", _read, DecoderLayer, lambda config: _KEYS)
