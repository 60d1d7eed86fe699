"""Command R7B and A (arXiv:2504.00698): a Command R with windows; layers without a window lack RoPE."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import windows_by_type
from transformer_core.layers._rope_config import RopeKind
from transformer_core.models.families._cohere import cohere_kind, one_norm_layer


def _read(fields: ConfigFields) -> DecoderConfig:
    layers, every = fields.integer("num_hidden_layers"), fields.integer("sliding_window_pattern", 4)
    turns = ["sliding_attention" if (index + 1) % every else "full_attention" for index in range(layers)]
    windows = windows_by_type(fields, turns)
    kinds = tuple(RopeKind.NONE if window is None else RopeKind.MODEL for window in windows)
    return cohere_kind(fields, COHERE2.architecture, windows=windows, rope_kinds=kinds)


COHERE2: Final = Family("Cohere2ForCausalLM", "cohere2", _read, one_norm_layer)
