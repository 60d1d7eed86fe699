"""Flint: a Qwen3-MoE with sinks in attention, RoPE in layers with a window alone, and sigmoid scores of experts."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, RecipeOf, RenamedParts, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, layer_types, llama_kind, windows_by_type
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_types import FULL, SLIDING
from transformer_core.layers._rope_config import RopeKind
from transformer_core.layers._routing import Scoring
from transformer_core.models.families._qwen3_moe import qwen_experts

_PARTS: Final = RenamedParts(
    {
        ".self_attn.sinks": (".self_attn.softmax_offset", ".self_attn.sinks"),
        ".mlp.shared_experts.": (".mlp.shared_expert.",),
    }
)


def _read(fields: ConfigFields) -> DecoderConfig:
    dense = fields.values.get("mlp_only_layers")
    values = {"head_dim": 128, **fields.values, "mlp_only_layers": [0, 1] if dense is None else dense}
    fields = ConfigFields(values, fields.where)
    heads, kv_heads, head_size = heads_of(fields)
    layers = fields.integer("num_hidden_layers")
    turns = [FULL if index < 2 or index % 4 == 1 or index == layers - 1 else SLIDING for index in range(layers)]
    kinds = layer_types(fields, turns)
    experts = qwen_experts(fields, normalized=True)
    biased = fields.boolean("attention_bias", False)
    return llama_kind(
        fields,
        FLINT.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        sinks=True,
        rope_kinds=tuple(RopeKind.MODEL if kind == SLIDING else RopeKind.NONE for kind in kinds),
        windows=windows_by_type(fields, kinds, default_window=513),
        experts=replace(
            experts,
            routing=replace(experts.routing, scoring=Scoring.SIGMOID),
            shared=fields.integer("shared_expert_intermediate_size", 1024),
        ),
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return first_of(_PARTS, ExpertKeys())


FLINT: Final = Family("FlintForCausalLM", "flint", _read, DecoderLayer, _stored)
