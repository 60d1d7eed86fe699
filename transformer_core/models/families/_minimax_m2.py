"""MiniMax-M2: a Mixtral with DeepSeek-V3's corrected scores, partial rotation, and norms of all heads at once."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.layers._routing import Routing, Scoring

_ROPE_BASE: Final = 5e6  # transformers' default


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, head_dim_needed=True)
    fields.choice("scoring_func", ("sigmoid",), "sigmoid")
    share = fields.integer("rotary_dim", head_size) / head_size
    routing = Routing(
        experts=fields.integer("num_local_experts"),
        chosen=fields.integer("num_experts_per_tok"),
        scoring=Scoring.SIGMOID,
        corrected=True,
    )
    layers, inner = fields.integer("num_hidden_layers"), fields.integer("intermediate_size")
    return llama_kind(
        fields,
        MINIMAX_M2.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(fields, head_size, _ROPE_BASE, share),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qk_norm=True,
        qk_norm_whole=True,
        experts=ExpertsConfig(routing=routing, inner=inner, layers=(True,) * layers),
    )


_KEYS: Final = ExpertKeys(layer="block_sparse_moe", gate="w1", up="w3", down="w2", correction="e_score_correction_bias")
MINIMAX_M2: Final = Family("MiniMaxM2ForCausalLM", "minimax_m2", _read, DecoderLayer, lambda config: _KEYS)
