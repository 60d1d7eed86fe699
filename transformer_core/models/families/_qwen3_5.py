"""Qwen3.5, text: Qwen3-Next with a projection each for z, b and a; dense, or with experts in every layer."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import hybrid_layer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.family._wrapped import text_of
from transformer_core.layers._routing import Routing
from transformer_core.models.families._qwen3_next import hybrid_kind


def _read_dense(fields: ConfigFields) -> DecoderConfig:
    return _read(fields, QWEN3_5.architecture)


def _read_sparse(fields: ConfigFields) -> DecoderConfig:
    inner = fields.integer("moe_intermediate_size", 512)
    layers = fields.integer("num_hidden_layers")
    experts = ExpertsConfig(
        routing=Routing(
            experts=fields.integer("num_experts", 256),
            chosen=fields.integer("num_experts_per_tok", 8),
            normalized=True,
        ),
        inner=inner,
        layers=(True,) * layers,
        shared=fields.integer("shared_expert_intermediate_size", 512),
        shared_gate=True,
    )
    known: dict[str, Any] = {"intermediate": inner, "experts": experts}
    return _read(fields, QWEN3_5_MOE.architecture, **known)


def _read(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    return hybrid_kind(_of_text(fields), architecture, grouped=False, **known)


def _of_text(fields: ConfigFields) -> ConfigFields:
    """Returns the fields without RoPE's sections: time, height and width are one position in text."""
    values = dict(fields.values)
    for name in ("rope_parameters", "rope_scaling"):
        if fields.has(name):
            rope = fields.object(name).values
            values[name] = {key: value for key, value in rope.items() if not key.startswith("mrope_")}
    if not fields.boolean("attn_output_gate", True):
        fields.refuse("attn_output_gate", "true, or no such field: attention has a gate")
    return ConfigFields(values, fields.where)


QWEN3_5: Final = Family("Qwen3_5ForCausalLM", "qwen3_5_text", _read_dense, hybrid_layer)
QWEN3_5_MOE: Final = Family(
    "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", _read_sparse, hybrid_layer, lambda config: ExpertKeys()
)
QWEN3_5_WRAPPED: Final = text_of(QWEN3_5, "Qwen3_5ForConditionalGeneration", "qwen3_5")
QWEN3_5_MOE_WRAPPED: Final = text_of(QWEN3_5_MOE, "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe")
