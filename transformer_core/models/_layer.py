"""The layer of most decoders: norms before attention and before the feed-forward."""

from lang_core import DType, ExecutionContext, Module, Tensor
from transformer_core._attention import Attention
from transformer_core._cache import CachedLayer, CacheLayout
from transformer_core._feed_forward import SwiGLU
from transformer_core._kv_cache import KVCache
from transformer_core._latent_attention import LatentAttention
from transformer_core._moe import SparseFeedForward
from transformer_core._norm import RMSNorm
from transformer_core._step import Step
from transformer_core.models._config import DecoderConfig


class DecoderLayer(CachedLayer):
    """``x + attention(norm(x))``, then ``x + mlp(norm(x))``."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        self.self_attn = attention(config, index, dtype)
        self.mlp = feed_forward(config, index, dtype)
        self.input_layernorm = RMSNorm(config.hidden, eps=config.norm_eps, dtype=dtype)
        self.post_attention_layernorm = RMSNorm(config.hidden, eps=config.norm_eps, dtype=dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: Step, cache: KVCache | None = None
    ) -> tuple[Tensor, KVCache | None]:
        """x [B, T, D]: the same shape, and the updated cache."""
        x = ctx.tag(x, "input")
        attended, cache = self.self_attn(ctx, self.input_layernorm(ctx, x), step, cache)
        x = ctx.ops.add(x, ctx.tag(attended, "self_attn.output"))
        forwarded = self.mlp(ctx, self.post_attention_layernorm(ctx, x))
        return ctx.tag(ctx.ops.add(x, ctx.tag(forwarded, "mlp.output")), "output"), cache

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """That of attention."""
        return self.self_attn.cache_layout(batch, capacity)


def attention(config: DecoderConfig, index: int, dtype: DType) -> Attention | LatentAttention:
    """The attention of layer ``index``."""
    latent = config.latent
    if latent is not None:
        return LatentAttention(
            config.hidden,
            config.heads,
            plain_size=latent.plain_size,
            rotated_size=config.rope.rotated,
            value_size=latent.value_size,
            rank=latent.rank,
            query_rank=latent.query_rank,
            rope_mode=config.rope.mode,
            bias=config.qkv_bias,
            output_bias=config.output_bias,
            scale=latent.scale,
            dtype=dtype,
        )
    return Attention(
        config.hidden,
        config.heads,
        config.kv_heads,
        config.head_size,
        rope_mode=config.rope.mode,
        qkv_bias=config.qkv_bias,
        output_bias=config.output_bias,
        norm_eps=config.norm_eps if config.qk_norm else None,
        window=config.windows[index],
        dtype=dtype,
    )


def feed_forward(config: DecoderConfig, index: int, dtype: DType) -> Module:
    """The feed-forward of layer ``index``: dense, or a mixture of experts."""
    experts = config.experts
    if experts is not None and experts.layers[index]:
        return SparseFeedForward(config.hidden, experts.inner, experts.routing, shared=experts.shared, dtype=dtype)
    return SwiGLU(config.hidden, config.intermediate, bias=config.mlp_bias, dtype=dtype)
