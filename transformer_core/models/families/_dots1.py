"""dots.llm1 (arXiv:2506.05767): DeepSeek-V3's experts behind a Qwen3's attention."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, windows_by_type
from transformer_core.family._layer import DecoderLayer
from transformer_core.models.families._deepseek import grouped_experts


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("attention_bias", False)
    routed = ConfigFields({"norm_topk_prob": False, **fields.values}, fields.where)
    return llama_kind(
        fields,
        DOTS1.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        windows=_windows(fields),
        experts=grouped_experts(routed, dense=0, scale=1.0, groups=1, chosen_groups=1),
    )


def _windows(fields: ConfigFields) -> tuple[int | None, ...]:
    layers, first = fields.integer("num_hidden_layers"), fields.integer("max_window_layers", 62, minimum=0)
    slides = fields.has("sliding_window") or "sliding_window" not in fields.values
    kinds = ["sliding_attention" if slides and index >= first else "full_attention" for index in range(layers)]
    return windows_by_type(fields, kinds)


DOTS1: Final = Family("Dots1ForCausalLM", "dots1", _read, DecoderLayer, lambda config: ExpertKeys())
