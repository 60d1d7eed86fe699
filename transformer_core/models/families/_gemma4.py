"""Gemma 4, text: layers of two sizes of heads, embeddings for every layer, experts beside the feed-forward."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import fused_experts
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, layer_types, optional_number, windows_of
from transformer_core.family._layer_configs import ExpertsConfig, LayerSizes
from transformer_core.family._layer_types import (
    FULL,
    SLIDING,
    every_nth_full,
    heads_of_types,
    owners_of,
    rope_kinds,
    rope_of_type,
)
from transformer_core.family._per_layer import read_per_layer
from transformer_core.family._scaled_layer import ScaledLayer
from transformer_core.family._wrapped import text_of
from transformer_core.layers._routing import Routing
from transformer_core.models.families._gemma import gemma_kind

_PROPORTIONAL: Final = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}
_PLAIN: Final = {"rope_type": "default", "rope_theta": 1e4}


def _read(fields: ConfigFields) -> DecoderConfig:
    fields.choice("use_bidirectional_attention", ("vision",), "vision")  # of images alone: text looks back
    layers = fields.integer("num_hidden_layers")
    types = [*layer_types(fields, every_nth_full(layers, 6))[:-1], FULL]  # transformers sets the last one, too
    owners = owners_of(fields, types, 0)
    sizes, name = _sizes(fields, types, owners), GEMMA4.architecture
    heads = dict(zip(types, (layer.head_size for layer in sizes), strict=True))
    local = rope_of_type(fields, name, SLIDING, heads[SLIDING], 1e4, **_PLAIN) if SLIDING in heads else None
    return gemma_kind(
        ConfigFields({**fields.values, "use_bidirectional_attention": None}, fields.where),
        name,
        zero_centred=False,
        qk_norm=True,
        v_norm=True,
        scale=1.0,
        rope=rope_of_type(fields, name, FULL, heads[FULL], 1e6, **_PROPORTIONAL),
        local_rope=local,
        rope_kinds=rope_kinds(types),
        activation=activation_of(fields, "hidden_activation", "gelu_pytorch_tanh"),
        windows=windows_of(fields, types, 512),
        logits_softcap=optional_number(fields, "final_logit_softcapping", None),
        cache_owners=owners,
        layer_sizes=sizes,
        per_layer=read_per_layer(fields, whole=True),
        experts=_experts(fields, layers) if fields.boolean("enable_moe_block", False) else None,
    )


def _sizes(fields: ConfigFields, types: list[str], owners: tuple[int | None, ...]) -> tuple[LayerSizes, ...]:
    """Reads K, H and F of each layer."""
    alike, wide = fields.boolean("attention_k_eq_v", False), fields.boolean("use_double_wide_mlp", False)
    heads, inner = heads_of_types(fields, types, own_kv_heads=alike), fields.integer("intermediate_size")
    return tuple(
        LayerSizes(
            kv_heads=heads[kind][0],
            head_size=heads[kind][1],
            intermediate=inner * (2 if wide and owner is not None else 1),
            values_are_keys=alike and kind == FULL,
        )
        for kind, owner in zip(types, owners or (None,) * len(types), strict=True)
    )


def _experts(fields: ConfigFields, layers: int) -> ExpertsConfig:
    routing = Routing(experts=fields.integer("num_experts"), chosen=fields.integer("top_k_experts"))
    inner = fields.integer("moe_intermediate_size")
    return ExpertsConfig(routing=routing, inner=inner, layers=(True,) * layers, beside=True)


GEMMA4: Final = Family("Gemma4ForCausalLM", "gemma4_text", _read, ScaledLayer, lambda config: fused_experts)
GEMMA4_WRAPPED: Final = text_of(GEMMA4, "Gemma4ForConditionalGeneration", "gemma4", tied=True)
