"""EXAONE 4 (arXiv:2507.11407): norms after attention and feed-forward; layers without a window lack RoPE."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import layer_types, llama_kind, windows_by_type
from transformer_core.family._other_layers import PostNormLayer
from transformer_core.layers._rope_config import RopeKind

_FULL: Final = "full_attention"
_SLIDING: Final = "sliding_attention"


def _read(fields: ConfigFields) -> DecoderConfig:
    windowed = fields.has("sliding_window") or "sliding_window" not in fields.values
    listed = not windowed or fields.has("layer_types")
    turns = [_FULL] * fields.integer("num_hidden_layers") if listed else layers_by_turns(fields)
    rotates = [kind == _SLIDING or not windowed for kind in layer_types(fields, turns)]
    return llama_kind(
        fields,
        EXAONE4.architecture,
        qk_norm=True,
        rope_kinds=tuple(RopeKind.MODEL if rotated else RopeKind.NONE for rotated in rotates),
        windows=windows_by_type(fields, turns),
    )


def layers_by_turns(fields: ConfigFields) -> list[str]:
    """Returns the kinds of layers of a file that does not list them."""
    layers, every = fields.integer("num_hidden_layers"), fields.integer("sliding_window_pattern", 4)
    return [_SLIDING if (index + 1) % every else _FULL for index in range(layers)]


EXAONE4: Final = Family("Exaone4ForCausalLM", "exaone4", _read, PostNormLayer)
