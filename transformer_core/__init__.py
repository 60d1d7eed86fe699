"""Transformers, written once against ``ctx.ops``.

The letters of axes, here and in every docstring:

    B  batch               H  head size
    T  query positions     D  model size
    S  key positions       F  feed-forward size
    N  query heads         V  vocabulary
    K  key/value heads     L  layers
    E  experts

Besides these, R is the number of rotated dims of a head and G = N / K the query heads of a key/value head.

>>> import numpy as np
>>> from lang_core import EagerExecutionContext
>>> from transformer_core import RopeConfig, rope
>>> x = np.ones((1, 3, 4), np.float32)  # [N, T, H]
>>> rope(EagerExecutionContext(), x, RopeConfig(rotated=4)).numpy()[0, 1].round(2).tolist()
[-0.30000001192092896, 0.9900000095367432, 1.3799999952316284, 1.0099999904632568]
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from transformer_core._config_fields import ConfigFields
    from transformer_core._json_files import config_fields
    from transformer_core._names import (
        ADAPTED,
        ADAPTER_TABLES,
        ALIGN,
        CONFIG_FILE,
        DRAFT,
        ENCODE_IMAGE,
        NEXT_IDS,
        PACKED,
        POSITIONS,
        PREFILL_EMBEDDINGS,
        PREFILL_EMBEDDINGS_ROW,
        TEXT_ALIGNMENT,
        WINDOW_CACHES,
    )
    from transformer_core._packing import STORED, keep_packed, pack_weights
    from transformer_core._sentence_files import (
        MODULES_FILE,
        SENTENCE_CONFIGS,
        SENTENCE_FILES,
        SENTENCE_WEIGHTS,
        SentenceModule,
        read_modules,
        read_transformer_settings,
    )
    from transformer_core.layers._altup import AltUp, AltUpProjections, AltUpSizes, AltUpUnembedding, Laurel
    from transformer_core.layers._attention import Attention, grouped_attention
    from transformer_core.layers._attention_config import (
        AttentionConfig,
        CacheSharing,
        LatentAttentionConfig,
        LayerRope,
        QueryGrowth,
        QueryKeyNorm,
        QueryKeyNormKind,
        ScoreConfig,
    )
    from transformer_core.layers._cache import (
        Cache,
        CachedLayer,
        CacheLayout,
        SharedCache,
        State,
        StateMixer,
        shared_layout,
    )
    from transformer_core.layers._convolution import CausalConv, Conv1d
    from transformer_core.layers._embedding import Embedding, PatchEmbedding, TokenEmbedding, patch_count
    from transformer_core.layers._feed_forward import Activation, FeedForward, SwiGLU
    from transformer_core.layers._gated_delta_net import (
        DeltaState,
        GatedDeltaNet,
        HeadOrder,
        delta_layout,
        repeat_heads,
    )
    from transformer_core.layers._joint_block import JointBlock, Modulation
    from transformer_core.layers._kv_cache import KVCache, RingCache, cache_spec, kv_layout, ring_layout
    from transformer_core.layers._latent_attention import LatentAttention
    from transformer_core.layers._latent_experts import LatentExperts
    from transformer_core.layers._linear import Linear, VocabularyLinear
    from transformer_core.layers._mamba2 import GateOrder, GroupedGatedNorm, Mamba2, Mamba2Sizes, Mamba2State
    from transformer_core.layers._masks import causal_mask, mask_bias, padding_bias
    from transformer_core.layers._moe import Experts, SparseFeedForward
    from transformer_core.layers._multi_head_attention import MultiHeadAttention
    from transformer_core.layers._norm import GatedRMSNorm, LayerNorm, RMSNorm
    from transformer_core.layers._places import Places, RowPlaces, Starts, cache_starts, row_places
    from transformer_core.layers._rope import apply_rope, inverse_frequencies, rope, rope_tables
    from transformer_core.layers._rope_config import RopeConfig, RopeKind, RopeMode, rope_config_from_hf
    from transformer_core.layers._rope_scaling import (
        DynamicScaling,
        LinearScaling,
        Llama3Scaling,
        LongropeScaling,
        NoScaling,
        ProportionalScaling,
        RopeScaling,
        YarnScaling,
    )
    from transformer_core.layers._routing import Router, Routing, ScaledRouter, Scoring
    from transformer_core.layers._short_convolution import ConvState, ShortConv
    from transformer_core.layers._step import StepInputs, for_heads, make_step

export_lazily(__name__)
