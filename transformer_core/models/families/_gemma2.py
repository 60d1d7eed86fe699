"""Gemma 2 (arXiv:2408.00118): a Gemma with four norms per layer, capped scores and logits, and some windows."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, optional_number, windows_by_type
from transformer_core.family._other_layers import SandwichLayer
from transformer_core.models.families._gemma import gemma_kind


def gemma2_kind(fields: ConfigFields, architecture: str) -> DecoderConfig:
    """Reads the fields that Gemma 2 and its successors share."""
    layers = fields.integer("num_hidden_layers")
    types = ["full_attention" if index % 2 else "sliding_attention" for index in range(layers)]
    return gemma_kind(
        fields,
        architecture,
        activation=activation_of(fields, "hidden_activation", "gelu_pytorch_tanh"),
        windows=windows_by_type(fields, types),
        scale=fields.number("query_pre_attn_scalar", 256.0) ** -0.5,
        softcap=optional_number(fields, "attn_logit_softcapping", 50.0),
        logits_softcap=optional_number(fields, "final_logit_softcapping", 30.0),
    )


def _read(fields: ConfigFields) -> DecoderConfig:
    return gemma2_kind(fields, GEMMA2.architecture)


GEMMA2: Final = Family("Gemma2ForCausalLM", "gemma2", _read, SandwichLayer)
