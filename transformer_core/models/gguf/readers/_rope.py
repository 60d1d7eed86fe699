"""RoPE in the metadata and tensors of GGUF files."""

from collections.abc import Callable
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.gguf import GgufCheckpoint
from transformer_core.models.gguf.readers._metadata_fields import vector

_DIVISORS: Final = "rope_freqs.weight"
_SHORT: Final = "rope_factors_short.weight"
_LONG: Final = "rope_factors_long.weight"
FREQUENCIES: Final = (_DIVISORS, _SHORT, _LONG)
"""Names of tensors of RoPE's frequencies in GGUF files."""

_TYPE: Final = "rope.scaling.type"
_FACTOR: Final = "rope.scaling.factor"
ORIGINAL: Final = "rope.scaling.original_context_length"
_ATTENTION: Final = "rope.scaling.attn_factor"
_YARN_ATTENTION: Final = "rope.scaling.yarn_attn_factor"

Values = dict[str, Any]


def rope_values(file: GgufCheckpoint, fields: ConfigFields, head_size: int) -> Values:
    """Returns RoPE's fields of config.json.

    Raises:
        ConfigError: a field is missing, of the wrong type, or names a scaling that is not supported.
    """
    trained = fields.integer("context_length")
    values: Values = {
        "max_position_embeddings": trained,
        "rope_theta": fields.number("rope.freq_base", 10000.0, above=1.0),
    }
    rotated = fields.integer("rope.dimension_count", head_size)
    if rotated != head_size:
        values["partial_rotary_factor"] = rotated / head_size
    if file.has(_LONG) or file.has(_SHORT):
        return values | _longrope(file, fields, trained)
    if file.has(_DIVISORS):
        # Llama 3's scaling, precomputed: one divisor per frequency for all lengths.
        divisors = vector(file, _DIVISORS)
        scaling = {"rope_type": "longrope", "short_factor": divisors, "long_factor": divisors, "attention_factor": 1.0}
        return values | {"rope_scaling": scaling}
    kind = fields.choice(_TYPE, _SCALINGS, "none")
    return values | _SCALINGS[kind](fields, trained)


def _longrope(file: GgufCheckpoint, fields: ConfigFields, trained: int) -> Values:
    scaling = {
        "rope_type": "longrope",
        "short_factor": vector(file, _SHORT),
        "long_factor": vector(file, _LONG),
        "attention_factor": fields.number(_ATTENTION, 1.0),
    }
    original = fields.integer(ORIGINAL, trained)
    return {"rope_scaling": scaling, "original_max_position_embeddings": original}


def _none(fields: ConfigFields, trained: int) -> Values:
    factor = "rope.scale_linear"  # its name in early files
    return _scaled("linear", fields.number(factor)) if fields.values.get(factor, 1.0) != 1.0 else {}


def _linear(fields: ConfigFields, trained: int) -> Values:
    return _scaled("linear", fields.number(_FACTOR))


def _yarn(fields: ConfigFields, trained: int) -> Values:
    if fields.values.get(_ATTENTION, 1.0) != 1.0:
        fields.refuse(_ATTENTION, "1, or no such field: with yarn, versions of llama.cpp disagree about its meaning")
    if fields.values.get("rope.scaling.yarn_log_multiplier"):
        fields.refuse("rope.scaling.yarn_log_multiplier", "0, or no such field")
    attention = {"attention_factor": fields.number(_YARN_ATTENTION)} if fields.has(_YARN_ATTENTION) else {}
    return _scaled(
        "yarn",
        fields.number(_FACTOR),
        original_max_position_embeddings=fields.integer(ORIGINAL),
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1.0),
        **attention,
    )


def _scaled(kind: str, factor: float, **more: Any) -> Values:
    return {"rope_scaling": {"rope_type": kind, "factor": factor, **more}}


_SCALINGS: Final[dict[str, Callable[[ConfigFields, int], Values]]] = {"none": _none, "linear": _linear, "yarn": _yarn}
