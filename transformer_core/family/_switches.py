"""Fields of config.json that change a Llama's results."""

from collections.abc import Iterable
from typing import Final

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields

SWITCHES: Final = {
    "attention_bias": ("qkv_bias", "output_bias"),
    "qkv_bias": ("qkv_bias",),
    "mlp_bias": ("mlp_bias",),
    "use_bias": ("qkv_bias", "output_bias", "mlp_bias"),
    "lm_head_bias": ("head_bias",),
    "use_qk_norm": ("qk_norm", "qk_norm_whole"),
    "qk_layernorm": ("qk_norm", "qk_norm_whole"),
    "clip_qkv": ("qkv_clip",),
    "sliding_window": ("windows",),
    "layer_types": ("windows", "mixer"),
    "no_rope_layers": ("rope_kinds",),
    "use_parallel_residual": ("parallel",),
    "attention_multiplier": ("scale",),
    "query_pre_attn_scalar": ("scale",),
    "attn_logit_softcapping": ("softcap",),
    "embedding_multiplier": ("embedding_scale",),
    "residual_multiplier": ("residual_scale",),
    "logit_scale": ("logits_scale",),
    "logits_scaling": ("logits_scale",),
    "final_logit_softcapping": ("logits_softcap",),
    "num_experts": ("experts", "mixer"),
    "num_local_experts": ("experts", "mixer"),
    "n_routed_experts": ("experts", "mixer"),
}
"""Attributes of ``DecoderConfig`` that each field decides, one or more of them."""

_FULL: Final = "full_attention"


def refuse_unread_switches(fields: ConfigFields, architecture: str, known: Iterable[str]) -> None:
    """Refuses a field of ``SWITCHES`` that the file sets, and of which the family has read nothing.

    Args:
        fields: fields of config.json.
        architecture: architecture of the family.
        known: attributes of ``DecoderConfig`` that the family reads itself.

    Raises:
        ConfigError: there is such a field.
    """
    read = set(known)
    for name, attributes in SWITCHES.items():
        if read.isdisjoint(attributes) and _is_on(fields, name):
            raise ConfigError(
                f"{fields.where}: field {name!r}: expected none or off, for {architecture} does not read it; found "
                f"{fields.values[name]!r}: give llama_kind {' or '.join(attributes)}, or take the field out of "
                "the file where the model was trained without it"
            )


def _is_on(fields: ConfigFields, name: str) -> bool:
    value = fields.values.get(name)
    if name == "sliding_window" and fields.values.get("use_sliding_window") is False:
        return False
    if isinstance(value, list):
        return any(entry != _FULL for entry in value) if name == "layer_types" else not all(value)
    return value is True or value not in (None, False, 0, 1)
