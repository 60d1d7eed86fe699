"""Refact, PLaMo 1 and 3, and Maincoder, of which GGUF files alone are read: no other computation is known to agree."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, layer_types, llama_kind, whole_rope, windows_by_type
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_types import FULL, SLIDING, ropes_of_types
from transformer_core.family._other_layers import ParallelLayer, SandwichLayer
from transformer_core.layers._attention_config import Alibi
from transformer_core.layers._relative_bias import alibi_slopes
from transformer_core.layers._rope_config import DEFAULT_BASE, RopeKind, RopeMode

_FORM: Final = "gguf"


_Reader = Callable[[ConfigFields], DecoderConfig]


def _of_gguf(architecture: str, read: _Reader) -> _Reader:
    """Returns a reader that refuses the fields of safetensors."""

    def checked(fields: ConfigFields) -> DecoderConfig:
        if fields.values.get("stored_form") != _FORM:
            fields.refuse("stored_form", f"{_FORM!r}: give a GGUF file, for safetensors of {architecture} are not read")
        return read(fields)

    return checked


def _kind(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    """Reads the fields that readers of GGUF files give."""
    heads, kv_heads, head_size = heads_of(fields)
    return llama_kind(fields, architecture, heads=heads, kv_heads=kv_heads, head_size=head_size, **known)


def _read_refact(fields: ConfigFields) -> DecoderConfig:
    layers, heads = fields.integer("num_hidden_layers"), fields.integer("num_attention_heads")
    if fields.integer("hidden_size") % heads:
        fields.refuse("num_attention_heads", "a divisor of hidden_size")
    return _kind(
        fields,
        REFACT.architecture,
        alibi=Alibi(tuple(alibi_slopes(heads).tolist())),
        rope_kinds=(RopeKind.NONE,) * layers,
    )


def _read_plamo(fields: ConfigFields) -> DecoderConfig:
    return _kind(fields, PLAMO.architecture)


def _read_plamo3(fields: ConfigFields) -> DecoderConfig:
    types = layer_types(fields, [FULL] * fields.integer("num_hidden_layers"))
    if SLIDING not in types:
        return _kind(fields, PLAMO3.architecture, qk_norm=True)
    default: dict[str, Any] = {"rope_type": "default", "rope_theta": DEFAULT_BASE}
    ropes = ropes_of_types(fields, types, fields.integer("head_dim"), dict.fromkeys((FULL, SLIDING), default))
    windows = windows_by_type(fields, types)
    return _kind(fields, PLAMO3.architecture, qk_norm=True, windows=windows, **ropes)


def _read_maincoder(fields: ConfigFields) -> DecoderConfig:
    rope = replace(whole_rope(fields, MAINCODER.architecture, fields.integer("head_dim")), mode=RopeMode.INTERLEAVED)
    return _kind(fields, MAINCODER.architecture, rope=rope, qk_norm=True, qk_norm_after_rope=True)


def _one_norm(config: DecoderConfig, index: int, dtype: Any) -> ParallelLayer:
    return ParallelLayer(config, index, dtype, one_norm=True)


def _family(architecture: str, model_type: str, read: _Reader, layer: Any) -> Family:
    return Family(architecture, model_type, _of_gguf(architecture, read), layer)


REFACT: Final = _family("GPTRefactForCausalLM", "gpt_refact", _read_refact, DecoderLayer)
PLAMO: Final = _family("PlamoForCausalLM", "plamo", _read_plamo, _one_norm)
PLAMO3: Final = _family("Plamo3ForCausalLM", "plamo3", _read_plamo3, SandwichLayer)
MAINCODER: Final = _family("MaincoderForCausalLM", "maincoder", _read_maincoder, DecoderLayer)
