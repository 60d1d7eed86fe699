"""Layers of decoders that attend to earlier tokens and to an encoder's states."""

from collections.abc import Iterable

from lang_core import DType, ExecutionContext, Module, Tensor
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._places import cache_starts
from transformer_core.models.encoders._stack import StackConfig, layer_norm, stack_attention, stack_feed_forward


class CrossLayer(Module):
    """Layer of self-attention, attention to the encoder's states, and a feed-forward; norms before each."""

    def __init__(self, config: StackConfig, dtype: DType) -> None:
        self.self_attn = stack_attention(config, dtype)
        self.attention_norm = layer_norm(config, dtype)
        self.cross_attn = stack_attention(config, dtype)
        self.cross_norm = layer_norm(config, dtype)
        self.mlp = stack_feed_forward(config, dtype)
        self.mlp_norm = layer_norm(config, dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        cross: KVCache,
        bias: Tensor,
        cache: KVCache | None = None,
        position: Tensor | None = None,
        cross_bias: Tensor | None = None,
    ) -> tuple[Tensor, KVCache]:
        """Runs the layer on new tokens.

        Args:
            ctx: context that computes.
            x: [B, T, D].
            cross: keys and values [B, N, S', H] of the encoder's states.
            bias: f32, broadcast to [B, N, 1, T, S], added to the scores of tokens.
            cache: cache of earlier tokens, or None.
            position: rank-0 i32, position of the first new token; None without a cache.
            cross_bias: f32, broadcast to [B, N, 1, T, S'], added to the scores of the encoder's states.

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
        attended = self.cross_attn.attend(ctx, self.cross_norm(ctx, x), cross, cross_bias)
        x = ops.add(x, ctx.tag(attended, "cross_attn.output"))
        forwarded = self.mlp(ctx, self.mlp_norm(ctx, x))
        return ctx.tag(ops.add(x, ctx.tag(forwarded, "mlp.output")), "output"), memory


def cross_keys_values(ctx: ExecutionContext, layers: Iterable[Module], states: Tensor) -> tuple[KVCache, ...]:
    """Computes each layer's keys and values [B, N, S', H] of the encoder's states [B, S', D]."""
    crosses: list[KVCache] = []
    for layer in layers:
        assert isinstance(layer, CrossLayer)
        crosses.append(layer.cross_attn.keys_values(ctx, states))
    return tuple(crosses)
