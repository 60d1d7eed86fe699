"""Qwen2-MoE and Qwen1.5-MoE: a Qwen2 with mixtures of experts and a gated shared expert."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import layer_types, llama_kind, windows_by_type
from transformer_core.family._layer import DecoderLayer
from transformer_core.models.families._qwen3_moe import qwen_experts

_LAST_WINDOW: Final = 28  # transformers' default
_SLIDING: Final = "sliding_attention"


def _read(fields: ConfigFields) -> DecoderConfig:
    return llama_kind(
        fields,
        QWEN2_MOE.architecture,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=fields.boolean("qkv_bias", True),
        windows=_windows(fields),
        experts=qwen_experts(fields, shared="shared_expert_intermediate_size"),
    )


def _windows(fields: ConfigFields) -> tuple[int | None, ...]:
    """Reads the windows: in every other of the first ``max_window_layers`` layers, or as ``layer_types`` says."""
    layers, last = fields.integer("num_hidden_layers"), fields.integer("max_window_layers", _LAST_WINDOW, minimum=0)
    slides = fields.boolean("use_sliding_window", False)
    turns = [_SLIDING if slides and index < last and not index % 2 else "full_attention" for index in range(layers)]
    types = layer_types(fields, turns)
    if _SLIDING in types and not slides:
        fields.refuse("layer_types", "no sliding_attention, for use_sliding_window is false")
    return windows_by_type(fields, types) if _SLIDING in types else (None,) * layers


QWEN2_MOE: Final = Family("Qwen2MoeForCausalLM", "qwen2_moe", _read, DecoderLayer, lambda config: ExpertKeys())
