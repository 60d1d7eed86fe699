"""Gemma 3, text (arXiv:2503.19786): Gemma 2 with normed queries and keys; layers with windows have another RoPE."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core._rope_config import RopeConfig, RopeKind
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, layer_types, optional_number, windows_by_type
from transformer_core.family._other_layers import SandwichLayer
from transformer_core.family._wrapped import text_of
from transformer_core.models.families._gemma import gemma_kind

_GLOBAL_BASE: Final = 1e6
_LOCAL_BASE: Final = 1e4
_FULL: Final = "full_attention"
_SLIDING: Final = "sliding_attention"


def _read(fields: ConfigFields) -> DecoderConfig:
    layers = fields.integer("num_hidden_layers")
    every = fields.integer("sliding_window_pattern", 6)
    types = layer_types(fields, [_SLIDING if (index + 1) % every else _FULL for index in range(layers)])
    head_size = heads_of(fields, head_dim_needed=True)[2]
    return gemma_kind(
        fields,
        GEMMA3.architecture,
        qk_norm=True,
        rope=RopeConfig.from_hf(_rope_fields(fields, _FULL), head_size, _GLOBAL_BASE),
        local_rope=RopeConfig.from_hf(_rope_fields(fields, _SLIDING), head_size, _LOCAL_BASE),
        rope_kinds=tuple(RopeKind.LOCAL if kind == _SLIDING else RopeKind.MODEL for kind in types),
        activation=activation_of(fields, "hidden_activation", "gelu_pytorch_tanh"),
        windows=windows_by_type(fields, types),
        scale=fields.number("query_pre_attn_scalar", 256.0) ** -0.5,
        # attn_logit_softcapping is Gemma 2's: transformers reads the field here too, and caps nothing.
        logits_softcap=optional_number(fields, "final_logit_softcapping", None),
    )


def _rope_fields(fields: ConfigFields, kind: str) -> ConfigFields:
    """Returns the file's fields with the RoPE of one kind of layer only, from transformers 4's and 5's forms."""
    values: dict[str, Any] = dict(fields.values)
    if fields.has("rope_parameters"):
        values["rope_parameters"] = dict(fields.object("rope_parameters").object(kind).values)
    elif kind == _SLIDING:
        values |= {"rope_scaling": None, "rope_theta": fields.values.get("rope_local_base_freq")}
    return ConfigFields(values, fields.where)


GEMMA3: Final = Family("Gemma3ForCausalLM", "gemma3_text", _read, SandwichLayer)
GEMMA3_WRAPPED: Final = text_of(
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
