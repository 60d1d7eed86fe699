"""Gemma 3n, text: alternating updates, LAuReL, embeddings for every layer, sparse gates, shared caches."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._altup_layer import AltUpLayer
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, layer_types, optional_number, windows_of
from transformer_core.family._layer_configs import AltUpConfig, LayerSizes
from transformer_core.family._layer_types import (
    FULL,
    SLIDING,
    every_nth_full,
    listed,
    owners_of,
    rope_kinds,
    rope_of_type,
)
from transformer_core.family._per_layer import read_per_layer
from transformer_core.family._wrapped import text_of
from transformer_core.models.families._gemma import gemma_kind


def _read(fields: ConfigFields) -> DecoderConfig:
    layers, name = fields.integer("num_hidden_layers"), GEMMA3N.architecture
    types = layer_types(fields, every_nth_full(layers, 5))
    _, kv_heads, head_size = heads_of(fields, head_dim_needed=True)
    one = fields.values.get("intermediate_size")
    inners = [one] * layers if type(one) is int else listed(fields, "intermediate_size", None, "integers", _is_size)
    embedded = read_per_layer(fields, whole=False)
    if embedded is None:
        fields.refuse("hidden_size_per_layer_input", "an integer of at least 1")
    return gemma_kind(
        ConfigFields({**fields.values, "intermediate_size": max(inners)}, fields.where),
        name,
        zero_centred=False,
        qk_norm=True,
        v_norm=True,
        scale=1.0,
        rope=rope_of_type(fields, name, FULL, head_size, 1e6),
        local_rope=rope_of_type(fields, name, SLIDING, head_size, 1e4),
        rope_kinds=rope_kinds(types),
        activation=activation_of(fields, "hidden_activation", "gelu_pytorch_tanh"),
        windows=windows_of(fields, types, 512),
        logits_softcap=optional_number(fields, "final_logit_softcapping", 30.0),
        cache_owners=owners_of(fields, types, 15),
        layer_sizes=tuple(LayerSizes(kv_heads=kv_heads, head_size=head_size, intermediate=size) for size in inners),
        per_layer=embedded,
        altup=_altup(fields, layers),
    )


def _altup(fields: ConfigFields, layers: int) -> AltUpConfig:
    copies, active = fields.integer("altup_num_inputs", 4), fields.integer("altup_active_idx", 0, minimum=0)
    if active >= copies:
        fields.refuse("altup_active_idx", f"0 to {copies - 1}, one of altup_num_inputs ({copies})")
    sparse = [0.95 if layers > 10 and index < 10 else 0.0 for index in range(layers)]  # transformers' default
    shares = listed(fields, "activation_sparsity_pattern", sparse, "numbers of 0 or more, below 1", _is_share)
    return AltUpConfig(
        copies=copies,
        active=active,
        scaled=fields.boolean("altup_correct_scale", True),
        laurel_rank=fields.integer("laurel_rank", 64),
        sparsities=tuple(map(float, shares)),
    )


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1


GEMMA3N: Final = Family("Gemma3nForCausalLM", "gemma3n_text", _read, AltUpLayer)
GEMMA3N_WRAPPED: Final = text_of(GEMMA3N, "Gemma3nForConditionalGeneration", "gemma3n", tied=True)
