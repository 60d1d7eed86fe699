"""Whisper's decoder: layers that attend to earlier tokens and to the encoder's states."""

from collections.abc import Sequence

from lang_core import DType, ExecutionContext, Module, Repeated, Tensor
from transformer_core._embedding import Embedding
from transformer_core._feed_forward import FeedForward
from transformer_core._kv_cache import KVCache
from transformer_core._masks import causal_mask, mask_bias
from transformer_core._multi_head_attention import MultiHeadAttention
from transformer_core._places import cache_starts
from transformer_core.models.encoders._stack import StackConfig, layer_norm
from transformer_core.models.encoders._whisper_config import WhisperConfig


class CrossLayer(Module):
    """Layer of self-attention, attention to the encoder's states, and a feed-forward; norms before each."""

    def __init__(self, config: StackConfig, dtype: DType) -> None:
        size, heads = config.hidden, config.heads
        self.self_attn = MultiHeadAttention(size, heads, key_bias=config.key_bias, dtype=dtype)
        self.attention_norm = layer_norm(config, dtype)
        self.cross_attn = MultiHeadAttention(size, heads, key_bias=config.key_bias, dtype=dtype)
        self.cross_norm = layer_norm(config, dtype)
        self.mlp = FeedForward(size, config.intermediate, activation=config.activation, dtype=dtype)
        self.mlp_norm = layer_norm(config, dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        cross: KVCache,
        bias: Tensor,
        cache: KVCache | None = None,
        position: Tensor | None = None,
    ) -> tuple[Tensor, KVCache]:
        """Runs the layer on new tokens.

        Args:
            ctx: context that computes.
            x: [B, T, D].
            cross: keys and values [B, N, S', H] of the encoder's states.
            bias: f32 [T, S], 0 where a token sees another.
            cache: cache of earlier tokens, or None.
            position: rank-0 i32, position of the first new token; None without a cache.

        Returns:
            [B, T, D], and the keys and values of all tokens so far.
        """
        ops = ctx.ops
        x = ctx.tag(x, "input")
        normed = self.attention_norm(ctx, x)
        memory = self.self_attn.keys_values(ctx, normed)
        if cache is not None and position is not None:
            memory = cache.updated(ctx, memory.key, memory.value, cache_starts(ctx, position))
        x = ops.add(x, ctx.tag(self.self_attn.attend(ctx, normed, memory, bias), "self_attn.output"))
        attended = self.cross_attn.attend(ctx, self.cross_norm(ctx, x), cross)
        x = ops.add(x, ctx.tag(attended, "cross_attn.output"))
        forwarded = self.mlp(ctx, self.mlp_norm(ctx, x))
        return ctx.tag(ops.add(x, ctx.tag(forwarded, "mlp.output")), "output"), memory


class WhisperDecoder(Module):
    """Decoder: embeddings of tokens and positions, the layers, and a norm."""

    def __init__(self, config: WhisperConfig, dtype: DType) -> None:
        hidden = config.decoder.hidden
        self.embed_tokens = Embedding(config.vocabulary, hidden, dtype=dtype)
        self.embed_positions = Embedding(config.targets, hidden, dtype=dtype)
        self.layers = Repeated(config.decoder.layers, lambda index: CrossLayer(config.decoder, dtype))
        self.norm = layer_norm(config.decoder, dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        crosses: Sequence[KVCache],
        caches: Sequence[KVCache] | None = None,
        position: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KVCache, ...]]:
        """Runs the layers on new tokens.

        Args:
            ctx: context that computes.
            token_ids: i32 [B, T].
            crosses: result of ``cross_keys_values``.
            caches: caches of earlier tokens, one per layer, or None.
            position: rank-0 i32, position of the first token; None without caches.

        Returns:
            The residual stream [B, T, D], normed, and the updated caches.
        """
        ops, tokens = ctx.ops, token_ids.shape[1]
        positions = ops.iota((tokens,)) if position is None else ops.add(ops.iota((tokens,)), position)
        x = ops.add(self.embed_tokens(ctx, token_ids), self.embed_positions(ctx, positions))
        keys = tokens if caches is None else caches[0].capacity
        bias = mask_bias(ctx, causal_mask(ctx, tokens, keys, position=position))
        updated: list[KVCache] = []
        for index, layer in enumerate(self.layers):
            with ctx.block(layer.path):
                x, cache = layer(ctx, x, crosses[index], bias, None if caches is None else caches[index], position)
            updated.append(cache)
        return self.norm(ctx, x), tuple(updated)

    def cross_keys_values(self, ctx: ExecutionContext, states: Tensor) -> tuple[KVCache, ...]:
        """Computes each layer's keys and values [B, N, S', H] of the encoder's states [B, S', D]."""
        crosses: list[KVCache] = []
        for layer in self.layers:
            assert isinstance(layer, CrossLayer)
            crosses.append(layer.cross_attn.keys_values(ctx, states))
        return tuple(crosses)
