"""Kolibri 1: four norms per layer, windows with RoPE by turns, and experts that their logits choose."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, RecipeOf, RenamedParts, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, layer_types, llama_kind, windows_by_type
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.family._layer_types import SLIDING, every_nth_full
from transformer_core.family._other_layers import SandwichLayer
from transformer_core.layers._rope_config import RopeKind
from transformer_core.layers._routing import Routing, Scoring

_PARTS: Final = RenamedParts(
    {
        ".post_attention_layernorm.": (".post_attn_norm.", ".post_self_attn_layernorm."),
        ".pre_feedforward_layernorm.": (".post_attention_layernorm.",),
        ".post_feedforward_layernorm.": (".post_ffn_norm.", ".post_mlp_layernorm."),
        ".mlp.gate.e_score_correction_bias": (".moe.router.expert_bias", ".mlp.gate.e_score_correction_bias"),
    }
)


def _read(fields: ConfigFields) -> DecoderConfig:
    values = {"head_dim": 128, "intermediate_size": fields.integer("moe_intermediate_size", 512), **fields.values}
    fields = ConfigFields(values, fields.where).renamed({"num_experts": "num_local_experts"})
    heads, kv_heads, head_size = heads_of(fields)
    kinds = layer_types(fields, every_nth_full(fields.integer("num_hidden_layers"), 5))
    routing = Routing(
        experts=fields.integer("num_experts", 384),
        chosen=fields.integer("num_experts_per_tok", 6),
        scoring=Scoring.SIGMOID,
        normalized=fields.boolean("norm_topk_prob", False),
        corrected=True,
        by_logits=True,
    )
    windowed = fields.has("sliding_window") or "sliding_window" not in fields.values
    return llama_kind(
        fields,
        KOLIBRI1.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qk_norm=True,
        rope_kinds=tuple(RopeKind.MODEL if kind == SLIDING or not windowed else RopeKind.NONE for kind in kinds),
        windows=windows_by_type(fields, kinds, default_window=513),
        experts=ExpertsConfig(
            routing=routing,
            inner=fields.integer("moe_intermediate_size", 512),
            layers=(True,) * len(kinds),
            shared=fields.integer("shared_expert_intermediate_size", 512),
        ),
    )


def _stored(config: DecoderConfig) -> RecipeOf:
    return first_of(_PARTS, ExpertKeys())


KOLIBRI1: Final = Family("Kolibri1ForCausalLM", "kolibri1", _read, SandwichLayer, _stored)
