"""Layers of most decoders: norms before attention and before the feed-forward."""

from abc import abstractmethod
from typing import Any

from lang_core import ConfigError, DType, ExecutionContext, Module, Tensor
from transformer_core.family._config import DecoderConfig
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._attention import Attention
from transformer_core.layers._attention_config import (
    AttentionConfig,
    CacheSharing,
    LatentAttentionConfig,
    LayerRope,
    QueryKeyNorm,
    ScoreConfig,
)
from transformer_core.layers._cache import Cache, CachedLayer, CacheLayout, StateMixer
from transformer_core.layers._feed_forward import FeedForward, SwiGLU
from transformer_core.layers._latent_attention import LatentAttention
from transformer_core.layers._moe import SparseFeedForward
from transformer_core.layers._norm import LayerNorm, RMSNorm, WeightlessLayerNorm, WeightlessRMSNorm
from transformer_core.layers._rope_config import RopeKind
from transformer_core.layers._step import StepInputs


class AttentionLayer(CachedLayer):
    """Layer of attention and a feed-forward; subclasses combine them with norms."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        self.self_attn = attention(config, index, dtype)
        self.cache_owner = cache_owner(config, index)
        self.mlp = feed_forward(config, index, dtype)

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns attention's layout."""
        return self.self_attn.cache_layout(batch, capacity)


class _ResidualLayer(CachedLayer):
    """Layer ``x + mixed(norm(x))``, then ``x + mlp(norm(x))``; subclasses mix the tokens.

    The summands are scaled in some families (Granite).
    """

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        self.mlp = feed_forward(config, index, dtype)
        self.input_layernorm = norm(config, dtype)
        self.post_attention_layernorm = norm(config, dtype)
        self.residual_scale = config.residual_scale

    @abstractmethod
    def mixed(self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: Any) -> tuple[Tensor, Any]:
        """Mixes the tokens of normed x [B, T, D]: the same shape, and the updated cache."""

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: Cache | None = None
    ) -> tuple[Tensor, Cache | None]:
        """Runs the layer on x [B, T, D]: the same shape, and the updated cache."""
        x = ctx.tag(x, "input")
        mixed, cache = self.mixed(ctx, self.normed(ctx, x), step, cache)
        x = self._added(ctx, x, mixed)
        forwarded = self.forwarded(ctx, x)
        return ctx.tag(self._added(ctx, x, ctx.tag(forwarded, "mlp.output")), "output"), cache

    def normed(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Norms x [B, T, D] before its tokens are mixed."""
        return self.input_layernorm(ctx, x)

    def forwarded(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Computes the feed-forward of x [B, T, D]."""
        return self.mlp(ctx, self.post_attention_layernorm(ctx, x))

    def _added(self, ctx: ExecutionContext, x: Tensor, more: Tensor) -> Tensor:
        return ctx.ops.add(x, more if self.residual_scale == 1.0 else ctx.ops.mul(more, self.residual_scale))


class DecoderLayer(_ResidualLayer):
    """Layer ``x + attention(norm(x))``, then ``x + mlp(norm(x))``."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        self.self_attn = attention(config, index, dtype)
        self.cache_owner = cache_owner(config, index)
        super().__init__(config, index, dtype)

    def mixed(self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: Any) -> tuple[Tensor, Any]:
        """Mixes tokens x [B, T, D] with attention; returns [B, T, D] and the cache with them."""
        attended, cache = self.self_attn(ctx, x, step, cache)
        return ctx.tag(attended, "self_attn.output"), cache

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns attention's layout."""
        return self.self_attn.cache_layout(batch, capacity)


class StateLayer(_ResidualLayer):
    """Layer that mixes tokens by a state, in place of attention."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType, name: str) -> None:
        self.mixer_name = name
        setattr(self, name, state_mixer(config, dtype))
        super().__init__(config, index, dtype)

    @property
    def _mixer(self) -> StateMixer:
        return getattr(self, self.mixer_name)

    def mixed(self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: Any) -> tuple[Tensor, Any]:
        """Mixes tokens by the state."""
        mixed, cache = self._mixer(ctx, x, cache, step.count)
        return ctx.tag(mixed, f"{self.mixer_name}.output"), cache

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout of the state."""
        return self._mixer.cache_layout(batch, capacity)


def hybrid_layer(config: DecoderConfig, index: int, dtype: DType) -> CachedLayer:
    """Makes layer ``index`` of a model in which some layers mix tokens by a state."""
    if config.mixer is not None and config.mixer.layers[index]:
        return StateLayer(config, index, dtype, config.mixer.NAME)
    return DecoderLayer(config, index, dtype)


def state_mixer(config: DecoderConfig, dtype: DType) -> StateMixer:
    """Makes the mixer of a layer that mixes tokens by a state.

    Raises:
        ConfigError: none of the model's layers does.
    """
    if config.mixer is None:
        raise ConfigError(f"{config.architecture}: no layer mixes tokens by a state: expected a mixer; found none")
    return config.mixer.made(config.hidden, config.norm_eps, dtype)


def norm(
    config: DecoderConfig, dtype: DType, size: int | None = None
) -> RMSNorm | WeightlessRMSNorm | LayerNorm | WeightlessLayerNorm:
    """Makes a norm over D, or over ``size``."""
    size = config.hidden if size is None else size
    if config.norm is NormKind.RMS:
        return RMSNorm(size, eps=config.norm_eps, zero_centred=config.zero_centred, dtype=dtype)
    if config.norm is NormKind.RMS_WITHOUT_WEIGHT:
        return WeightlessRMSNorm(config.norm_eps)
    if config.norm is NormKind.LAYER_WITHOUT_WEIGHT:
        return WeightlessLayerNorm(config.norm_eps)
    biased = config.norm is NormKind.LAYER
    return LayerNorm(size, eps=config.norm_eps, bias=biased, zero_centred=config.zero_centred, dtype=dtype)


def attention(config: DecoderConfig, index: int, dtype: DType) -> Attention | LatentAttention:
    """Makes the attention of layer ``index``.

    Raises:
        ConfigError: as ``cache_owner``.
    """
    latent = config.latent
    if latent is not None:
        sizes = LatentAttentionConfig(
            size=config.hidden,
            heads=config.heads,
            plain_size=latent.plain_size,
            rotated_size=config.rope.rotated,
            value_size=latent.value_size,
            rank=latent.rank,
            scale=latent.scale,
            query_rank=latent.query_rank,
            rope_mode=config.rope.mode,
            bias=config.qkv_bias,
            output_bias=config.output_bias,
            indexer=latent.indexer,
        )
        return LatentAttention(sizes, dtype=dtype)
    return Attention(_attention_config(config, index), dtype=dtype)


def _attention_config(config: DecoderConfig, index: int) -> AttentionConfig:
    kinds = config.qk_norm_whole, config.qk_norm_after_rope, config.v_norm, config.qk_norm_weighted, config.qk_norm_kind
    norm = QueryKeyNorm(config.norm_eps, config.zero_centred, *kinds)
    sizes = config.sizes_of(index)
    return AttentionConfig(
        size=config.hidden,
        heads=config.heads if sizes.heads is None else sizes.heads,
        kv_heads=sizes.kv_heads,
        head_size=sizes.head_size,
        qkv_bias=config.qkv_bias,
        output_bias=config.output_bias,
        gated=config.gated,
        sinks=config.sinks if sizes.sinks is None else sizes.sinks,
        window=config.windows[index],
        norm=norm if config.qk_norm else None,
        rope=LayerRope(config.rope.mode, config.rope_kinds[index] if config.rope_kinds else RopeKind.MODEL),
        scores=ScoreConfig(config.scale, config.softcap, config.query_growth, config.alibi),
        sharing=CacheSharing(cache_owner(config, index), index in config.cache_owners),
        values_are_keys=sizes.values_are_keys,
        clip=config.qkv_clip,
        output_norm=config.norm_eps if config.output_norm else None,
        value_size=config.value_size,
        value_scale=config.value_scale,
        gate=config.gate,
    )


def cache_owner(config: DecoderConfig, index: int) -> int | None:
    """Returns the number of the layer that layer ``index`` reads keys and values of; None for its own.

    Raises:
        ConfigError: that layer comes later, has none of its own, or has another window, RoPE, K or H.
    """
    owner = config.cache_owners[index] if config.cache_owners else None
    if owner is None:
        return None
    kinds = [
        (config.windows[layer], config.rope_kinds[layer] if config.rope_kinds else None) for layer in (index, owner)
    ]
    stateful = config.mixer is not None and config.mixer.layers[owner]
    if not 0 <= owner < index or config.cache_owners[owner] is not None or stateful or config.latent is not None:
        raise ConfigError(
            f"cache_owners: layer {index} reads the keys and values of layer {owner}: expected an earlier layer that "
            f"has some of its own, uncompressed"
        )
    if kinds[0] != kinds[1]:
        raise ConfigError(
            f"cache_owners: layer {index} reads the keys and values of layer {owner}: expected one of the same window "
            f"and RoPE ({kinds[0]}); found {kinds[1]}"
        )
    heads = [(sizes.kv_heads, sizes.head_size) for sizes in map(config.sizes_of, (index, owner))]
    if heads[0] != heads[1]:
        raise ConfigError(
            f"cache_owners: layer {index} reads the keys and values of layer {owner}: expected one of the same K and H "
            f"{heads[0]}; found {heads[1]}"
        )
    return owner


def feed_forward(config: DecoderConfig, index: int, dtype: DType) -> Module:
    """Makes the feed-forward of layer ``index``: dense, or a mixture of experts."""
    experts = config.experts
    if experts is not None and experts.layers[index] and not experts.beside:
        return SparseFeedForward(
            config.hidden,
            experts.inner,
            experts.routing,
            shared=experts.shared,
            shared_gate=experts.shared_gate,
            sum_scale=experts.sum_scale,
            biased=experts.biased,
            shared_biased=experts.shared_biased,
            scales_inputs=experts.scales_inputs,
            clamped=experts.clamped,
            activation=config.activation,
            dtype=dtype,
        )
    kind = SwiGLU if config.gated_mlp else FeedForward
    inner = config.sizes_of(index).intermediate
    return kind(config.hidden, inner, activation=config.activation, bias=config.mlp_bias, dtype=dtype)
