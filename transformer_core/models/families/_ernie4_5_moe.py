"""ERNIE 4.5 with mixtures of experts: interleaved RoPE, corrected softmax scores, biases everywhere or nowhere."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, whole_rope
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._rope_config import RopeMode
from transformer_core.layers._routing import Routing

_ROPE_BASE: Final = 500000.0  # transformers' default


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields)
    biased, tied = fields.boolean("use_bias", False), fields.boolean("tie_word_embeddings", True)
    rope = whole_rope(fields, ERNIE4_5_MOE.architecture, head_size, default_base=_ROPE_BASE)
    return llama_kind(
        fields,
        ERNIE4_5_MOE.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=replace(rope, mode=RopeMode.INTERLEAVED),
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        tied=tied,
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=biased,
        head_bias=biased,
        experts=_experts(fields, biased),
    )


def _experts(fields: ConfigFields, biased: bool) -> ExpertsConfig:
    layers, inner = fields.integer("num_hidden_layers"), fields.integer("moe_intermediate_size")
    first, last = (fields.integer(f"moe_layer_{end}_index", value, minimum=-1) for end, value in _ENDS)
    every, last = fields.integer("moe_layer_interval", 1), layers - 1 if last == -1 else last
    return ExpertsConfig(
        routing=Routing(
            experts=fields.integer("moe_num_experts"),
            chosen=fields.integer("moe_k"),
            least_sum=fields.number("moe_norm_min", 1e-12),
            corrected=True,
        ),
        inner=inner,
        layers=tuple(first <= index <= last and not (index + 1) % every for index in range(layers)),
        shared=inner * fields.integer("moe_num_shared_experts", 2, minimum=0),
        shared_biased=biased,
    )


_ENDS: Final = (("start", 1), ("end", -1))
_KEYS: Final = ExpertKeys(correction="moe_statics.e_score_correction_bias")
ERNIE4_5_MOE: Final = Family(
    "Ernie4_5_MoeForCausalLM",
    "ernie4_5_moe",
    _read,
    DecoderLayer,
    lambda config: _KEYS,
    ignorable=("model.mtp_*",),
)
