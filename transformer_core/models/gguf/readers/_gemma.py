"""Gemma 1 to 3."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.models.gguf.readers._architecture import AFTER_PARTS, GgufArchitecture
from transformer_core.models.gguf.readers._common import WINDOW, Source, Values, common, layer_types


def _gemma(source: Source) -> Values:
    return common(source, "GemmaForCausalLM", "gemma", hidden_act="gelu_pytorch_tanh")


def _query_scalar(source: Source, largest: int) -> float:
    """Returns the square of the divisor of scores: H, but D / N in the model with that many layers (27B)."""
    fields = source.fields
    heads, hidden = fields.integer("attention.head_count"), fields.integer("embedding_length")
    if fields.integer("block_count") == largest:
        return hidden / heads
    return float(fields.integer("attention.key_length", hidden // heads))


def _caps(fields: ConfigFields) -> Values:
    names = ("attn_logit_softcapping", "final_logit_softcapping")
    return {name: fields.number(name) if fields.has(name) else None for name in names}


def _gemma2(source: Source) -> Values:
    return common(
        source,
        "Gemma2ForCausalLM",
        "gemma2",
        hidden_activation="gelu_pytorch_tanh",
        sliding_window=source.fields.integer(WINDOW),
        query_pre_attn_scalar=_query_scalar(source, 46),
        **_caps(source.fields),
    )


def gemma3_values(source: Source) -> Values:
    """Returns the fields of Gemma 3."""
    fields = source.fields
    return common(
        source,
        "Gemma3ForCausalLM",
        "gemma3_text",
        hidden_activation="gelu_pytorch_tanh",
        sliding_window=fields.integer(WINDOW),
        query_pre_attn_scalar=_query_scalar(source, 62),
        rope_local_base_freq=fields.number("rope.freq_base_swa", 10000.0, above=1.0),
        **layer_types(fields, 6),
        **_caps(fields),
    )


_READS: Final = frozenset({"attn_logit_softcapping", "final_logit_softcapping", WINDOW})

GEMMAS: Final = (
    GgufArchitecture("gemma", _gemma),
    GgufArchitecture("gemma2", _gemma2, _READS, names=AFTER_PARTS),
    GgufArchitecture("gemma3", gemma3_values, _READS, names=AFTER_PARTS),
)
