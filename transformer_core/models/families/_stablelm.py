"""StableLM: layer norms, a quarter of a head rotated; in some models attention and feed-forward side by side."""

import re
from typing import Final

from lang_core import DType, WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, Stacked
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import AttentionLayer, DecoderLayer
from transformer_core.family._layer_configs import NormKind
from transformer_core.family._other_layers import ParallelLayer
from transformer_core.layers._attention_config import QueryKeyNormKind
from transformer_core.layers._rope_config import RopeConfig

_HEADS: Final = re.compile(r"(.*\.self_attn\.[qk])_norm\.weight")


def _read(fields: ConfigFields) -> DecoderConfig:
    heads, kv_heads, head_size = heads_of(fields)
    return llama_kind(
        fields,
        STABLELM.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rope=RopeConfig.from_hf(fields, head_size, default_share=0.25),
        qkv_bias=fields.boolean("use_qkv_bias", False),
        qk_norm=fields.boolean("qk_layernorm", False),
        qk_norm_kind=QueryKeyNormKind.LAYER_PER_HEAD,
        norm=NormKind.LAYER,
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        parallel=fields.boolean("use_parallel_residual", False),
    )


def _layer(config: DecoderConfig, index: int, dtype: DType) -> AttentionLayer | DecoderLayer:
    return ParallelLayer(config, index, dtype, one_norm=True) if config.parallel else DecoderLayer(config, index, dtype)


def _stored(name: str, shape: tuple[int, ...], _: WeightSource) -> Recipe | None:
    """Returns the recipe of the norms of queries and keys, which are stored head by head."""
    match = _HEADS.fullmatch(name)
    if match is None:
        return None
    return Stacked([f"{match[1]}_layernorm.norms.{head}.weight" for head in range(shape[0])], shape[1:])


STABLELM: Final = Family("StableLmForCausalLM", "stablelm", _read, _layer, lambda _: _stored)
