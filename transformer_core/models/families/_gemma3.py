"""Gemma 3, text (arXiv:2503.19786): Gemma 2 with normed queries and keys; layers with windows have another RoPE."""

from dataclasses import replace
from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, layer_types, optional_number, windows_by_type
from transformer_core.family._layer_types import FULL, SLIDING, every_nth_full, rope_fields, rope_kinds
from transformer_core.family._other_layers import SandwichLayer
from transformer_core.family._wrapped import text_of
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.models.families._gemma import gemma_kind

_GLOBAL_BASE: Final = 1e6
_LOCAL_BASE: Final = 1e4


def _read(fields: ConfigFields) -> DecoderConfig:
    layers = fields.integer("num_hidden_layers")
    every = fields.integer("sliding_window_pattern", 6)
    types = layer_types(fields, every_nth_full(layers, every))
    head_size = heads_of(fields, head_dim_needed=True)[2]
    return gemma_kind(
        fields,
        GEMMA3.architecture,
        qk_norm=True,
        rope=RopeConfig.from_hf(rope_fields(fields, FULL), head_size, _GLOBAL_BASE),
        local_rope=RopeConfig.from_hf(rope_fields(fields, SLIDING), head_size, _LOCAL_BASE),
        rope_kinds=rope_kinds(types),
        activation=activation_of(fields, "hidden_activation", "gelu_pytorch_tanh"),
        windows=windows_by_type(fields, types),
        scale=fields.number("query_pre_attn_scalar", 256.0) ** -0.5,
        # attn_logit_softcapping is Gemma 2's: transformers reads the field here too, and caps nothing.
        logits_softcap=optional_number(fields, "final_logit_softcapping", None),
    )


GEMMA3: Final = Family("Gemma3ForCausalLM", "gemma3_text", _read, SandwichLayer)
_WRAPPED: Final = text_of(
    GEMMA3,
    "Gemma3ForConditionalGeneration",
    "gemma3",
    defaults={  # transformers'
        "head_dim": 256,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "max_position_embeddings": 131072,
        "num_attention_heads": 8,
        "num_hidden_layers": 26,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-6,
        "vocab_size": 262208,
    },
)


def _read_wrapped(fields: ConfigFields) -> DecoderConfig:
    config = _WRAPPED.read(fields)
    if config.logits_softcap is not None:
        fields.object("text_config").refuse(
            "final_logit_softcapping", f"null: transformers' {_WRAPPED.architecture} caps no logits"
        )
    return config


GEMMA3_WRAPPED: Final = replace(_WRAPPED, read=_read_wrapped)
