"""Hunyuan, dense: a Llama that norms queries and keys after RoPE, with a base that may be stretched."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, whole_rope
from transformer_core.family._layer import DecoderLayer
from transformer_core.layers._rope_config import DEFAULT_BASE

STORED_NORMS: Final = {"q_norm": "query_layernorm", "k_norm": "key_layernorm"}


def hunyuan_kind(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    """Reads the fields that both Hunyuans share; arguments as of ``llama_kind``."""
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("attention_bias", False)
    return llama_kind(
        fields,
        architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=whole_rope(_stretched(fields, head_size), architecture, head_size),
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=True,
        qk_norm_after_rope=True,
        **known,
    )


def _read(fields: ConfigFields) -> DecoderConfig:
    return hunyuan_kind(fields, HUNYUAN_V1_DENSE.architecture)


def _stretched(fields: ConfigFields, head_size: int) -> ConfigFields:
    """Returns the fields with a greater base in place of a fixed ``alpha``, which files call dynamic."""
    name = next((name for name in ("rope_parameters", "rope_scaling") if fields.has(name)), None)
    if name is None:
        return fields
    rope = fields.object(name)
    kind = rope.values.get("rope_type", rope.values.get("type"))
    if kind != "dynamic" or not rope.values.get("alpha"):
        return fields
    if head_size <= 2:
        rope.refuse("alpha", "none: heads of 2 dims have no base to stretch")
    base = (rope if rope.has("rope_theta") else fields).number("rope_theta", DEFAULT_BASE, above=1.0)
    stretched = {"rope_type": "default", "rope_theta": base * rope.number("alpha") ** (head_size / (head_size - 2))}
    return ConfigFields({**fields.values, name: stretched}, fields.where)


HUNYUAN_V1_DENSE: Final = Family(
    "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", _read, DecoderLayer, lambda config: RenamedKeys(STORED_NORMS)
)
