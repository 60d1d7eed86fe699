"""SmolLM3: a Llama with layers without RoPE."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, whole_rope, windows_by_type
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._rope_config import RopeKind

_ROPE_BASE: Final = 2e6  # transformers' default


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields)
    biased = fields.boolean("attention_bias", False)
    kinds = rope_kinds(fields)
    slides = fields.boolean("use_sliding_window", False) and fields.has("sliding_window")
    # Where layer_types is given, transformers ignores use_sliding_window.
    types = ["sliding_attention" if slides and kind is RopeKind.NONE else "full_attention" for kind in kinds]
    return llama_kind(
        fields,
        SMOLLM3.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=whole_rope(fields, SMOLLM3.architecture, head_size, default_base=_ROPE_BASE),
        rope_kinds=kinds,
        windows=windows_by_type(fields, types),
        tied=fields.boolean("tie_word_embeddings", True),
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=fields.boolean("mlp_bias", False),
    )


def rope_kinds(fields: ConfigFields) -> tuple[RopeKind, ...]:
    """Reads which layers rotate: as ``no_rope_layers`` says, or all but every ``no_rope_layer_interval``-th (4th)."""
    layers, every = fields.integer("num_hidden_layers"), fields.integer("no_rope_layer_interval", 4)
    rotates = fields.values.get("no_rope_layers")
    if rotates is None or rotates == []:
        rotates = [int((index + 1) % every != 0) for index in range(layers)]
    if not isinstance(rotates, list) or len(rotates) < layers or any(flag not in (0, 1) for flag in rotates):
        fields.refuse("no_rope_layers", f"a list of {layers} (num_hidden_layers) of 1 (rotates) or 0")
    return tuple(RopeKind.MODEL if flag else RopeKind.NONE for flag in rotates[:layers])


SMOLLM3: Final = Family("SmolLM3ForCausalLM", "smollm3", _read, DecoderLayer)
