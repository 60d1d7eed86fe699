"""Llama 4, text: chunked attention by turns with layers without RoPE, and experts that scale their inputs."""

from dataclasses import replace
from typing import Final

from lang_core import DType
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import InputMajorKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, kinds_of_layers, llama_kind, whole_rope
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.family._wrapped import text_of
from transformer_core.layers._attention_config import QueryGrowth
from transformer_core.layers._rope_config import RopeKind, RopeMode
from transformer_core.layers._routing import Routing, Scoring
from transformer_core.models.families._smollm3 import rope_kinds

_KINDS: Final = ("chunked_attention", "full_attention")


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields, head_dim_needed=True)
    kinds, biased = rope_kinds(fields), fields.boolean("attention_bias", False)
    growth = QueryGrowth(fields.number("attn_scale", 0.1), fields.integer("floor_scale", 8192), first=1)
    rope = whole_rope(fields, LLAMA4.architecture, head_size, default_base=5e5)
    return llama_kind(
        fields,
        LLAMA4.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=replace(rope, mode=RopeMode.INTERLEAVED),
        rope_kinds=kinds,
        intermediate=fields.integer("intermediate_size_mlp", 16384),
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        qkv_bias=biased,
        output_bias=biased,
        qk_norm=fields.boolean("use_qk_norm", True),
        qk_norm_after_rope=True,
        qk_norm_weighted=False,
        query_growth=growth if fields.boolean("attn_temperature_tuning", True) else None,
        windows=_chunks(fields, kinds),
        chunked=True,
        experts=_experts(fields),
    )


def _chunks(fields: ConfigFields, kinds: tuple[RopeKind, ...]) -> tuple[int | None, ...]:
    size = fields.integer("attention_chunk_size", 8192)
    types = kinds_of_layers(fields, _KINDS, [_KINDS[kind is RopeKind.NONE] for kind in kinds])
    return tuple(size if kind == _KINDS[0] else None for kind in types)


def _experts(fields: ConfigFields) -> ExpertsConfig:
    layers, every = fields.integer("num_hidden_layers"), fields.integer("interleave_moe_layer_step", 1)
    sparse, inner = fields.values.get("moe_layers"), fields.integer("intermediate_size")
    if sparse is None:
        sparse = list(range(every - 1, layers, every))
    if not isinstance(sparse, list) or not all(isinstance(index, int) for index in sparse):
        fields.refuse("moe_layers", "a list of the numbers of layers")
    experts, chosen = fields.integer("num_local_experts"), fields.integer("num_experts_per_tok", 1)
    return ExpertsConfig(
        routing=Routing(experts=experts, chosen=chosen, scoring=Scoring.SIGMOID, normalized=False),
        inner=inner,
        layers=tuple(index in sparse for index in range(layers)),
        shared=inner,
        scales_inputs=True,
    )


def _layer(config: DecoderConfig, index: int, dtype: DType) -> DecoderLayer:
    """Makes a layer: queries grow in those without RoPE, and are normed in the others."""
    rotates = config.rope_kinds[index] is not RopeKind.NONE
    changes = {"query_growth": None} if rotates else {"qk_norm": False}
    return DecoderLayer(replace(config, **changes), index, dtype)


LLAMA4: Final = Family("Llama4ForCausalLM", "llama4_text", _read, _layer, lambda config: InputMajorKeys())
LLAMA4_WRAPPED: Final = text_of(LLAMA4, "Llama4ForConditionalGeneration", "llama4")
