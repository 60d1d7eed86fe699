"""Jais (arXiv:2308.16149): a GPT-2 with ALiBi in place of positions, a gate, and scales of embeddings and logits."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RecipeOf
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._attention_config import Alibi
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._relative_bias import alibi_slopes
from transformer_core.models.families._gpt2 import gpt2_kind, gpt2_stored

_GATE: Final = {"mlp.gate_proj": "mlp.c_fc2"}


def _read(fields: ConfigFields) -> DecoderConfig:
    fields.choice("activation_function", ("swiglu",))
    fields.choice("position_embedding_type", ("alibi",))
    if fields.has("alibi_scaling"):
        fields.refuse("alibi_scaling", "null: slopes that change with the length are not built")
    by_size = fields.boolean("mup_scale_qk_dot_by_d", fields.boolean("scale_qk_dot_by_d", False))
    scale = fields.number("mup_embeddings_scale", fields.number("embeddings_scale", 1.0))
    width = fields.number("mup_width_scale", fields.number("width_scale", 1.0))
    plain = ConfigFields({**fields.values, "activation_function": "gelu"}, fields.where)
    config = gpt2_kind(plain, JAIS.architecture)
    return replace(
        config,
        learned_positions=0,
        alibi=Alibi(tuple(alibi_slopes(config.heads).tolist())),
        activation=Activation.SILU,
        gated_mlp=True,
        scale=1.0 / config.head_size if by_size else None,
        embedding_scale=scale,
        logits_scale=width * fields.number("mup_output_alpha", 1.0),
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return gpt2_stored(_GATE)


JAIS: Final = Family(
    "JAISLMHeadModel", "jais", _read, DecoderLayer, _stored, "*h.{}", ("*relative_pe.slopes", "*.attn.bias")
)
