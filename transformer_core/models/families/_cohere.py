"""Command R and R+: attention and feed-forward side by side behind one layer norm without a bias; scaled logits."""

from dataclasses import replace
from typing import Any, Final

from lang_core import DType
from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind, whole_rope
from transformer_core.family._layer_configs import NormKind
from transformer_core.family._other_layers import ParallelLayer
from transformer_core.layers._attention_config import QueryKeyNormKind
from transformer_core.layers._rope_config import DEFAULT_BASE, RopeMode

_ROPE_BASE: Final = 5e5  # transformers' default


def cohere_kind(
    fields: ConfigFields, architecture: str, *, default_base: float = DEFAULT_BASE, **known: Any
) -> DecoderConfig:
    """Reads the fields that both Coheres share.

    Args:
        fields: fields of config.json.
        architecture: architecture of the family.
        default_base: base of RoPE if the file has none.
        **known: attributes of ``DecoderConfig`` that the family reads itself.
    """
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    biased = fields.boolean("attention_bias", False)
    norms = {"norm": NormKind.LAYER_WITHOUT_BIAS, "norm_eps": fields.number("layer_norm_eps", 1e-5)}
    return llama_kind(
        fields,
        architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=replace(whole_rope(fields, architecture, head_size, default_base=default_base), mode=RopeMode.INTERLEAVED),
        qkv_bias=biased,
        output_bias=biased,
        parallel=True,
        logits_scale=fields.number("logit_scale", 0.0625),
        tied=fields.boolean("tie_word_embeddings", True),
        **{**norms, **known},
    )


def one_norm_layer(config: DecoderConfig, index: int, dtype: DType) -> ParallelLayer:
    """Makes layer ``index`` of a model with one norm for attention and feed-forward."""
    return ParallelLayer(config, index, dtype, one_norm=True)


def _read(fields: ConfigFields) -> DecoderConfig:
    return cohere_kind(
        fields,
        COHERE.architecture,
        default_base=_ROPE_BASE,
        qk_norm=fields.boolean("use_qk_norm", False),
        qk_norm_kind=QueryKeyNormKind.LAYER_PER_HEAD,
    )


COHERE: Final = Family("CohereForCausalLM", "cohere", _read, one_norm_layer)
