"""Layers of decoders that attend to earlier tokens and to an encoder's states."""

from collections.abc import Iterable

from lang_core import DType, ExecutionContext, Module, Tensor
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._places import cache_starts
from transformer_core.models.encoders._stack import StackConfig, layer_norm, stack_attention, stack_feed_forward


class CrossLayer(Module):
    """Layer of self-attention, attention to the encoder's states, and a feed-forward, each with a norm.

    Norms come before these parts, or with ``post_norm`` behind the residual additions.
    """

    def __init__(self, config: StackConfig, dtype: DType) -> None:
        self.self_attn = stack_attention(config, dtype)
        self.attention_norm = layer_norm(config, dtype)
        self.cross_attn = stack_attention(config, dtype)
        self.cross_norm = layer_norm(config, dtype)
        self.mlp = stack_feed_forward(config, dtype)
        self.mlp_norm = layer_norm(config, dtype)
        self.post_norm = config.post_norm

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
        x, memory = self.attended(ctx, x, bias, cache, position)
        return self.crossed(ctx, x, cross, cross_bias), memory

    def crossed(self, ctx: ExecutionContext, x: Tensor, cross: KVCache, cross_bias: Tensor | None = None) -> Tensor:
        """Runs what follows self-attention, with arguments as of ``forward``."""
        crossed = self.cross_attn.attend(ctx, self.before_cross(ctx, x), cross, cross_bias)
        x = self._added(ctx, x, ctx.tag(crossed, "cross_attn.output"), self.cross_norm)
        forwarded = ctx.tag(self.mlp(ctx, self._before(ctx, x, self.mlp_norm)), "mlp.output")
        return ctx.tag(self._added(ctx, x, forwarded, self.mlp_norm), "output")

    def attended(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        bias: Tensor,
        cache: KVCache | None = None,
        position: Tensor | None = None,
    ) -> tuple[Tensor, KVCache]:
        """Runs self-attention on new tokens, with arguments as of ``forward``: x behind it, and all keys and values."""
        x = ctx.tag(x, "input")
        normed = self._before(ctx, x, self.attention_norm)
        memory = self.self_attn.keys_values(ctx, normed)
        if cache is not None and position is not None:
            memory = cache.updated(ctx, memory.key, memory.value, cache_starts(ctx, position))
        attended = ctx.tag(self.self_attn.attend(ctx, normed, memory, bias), "self_attn.output")
        return self._added(ctx, x, attended, self.attention_norm), memory

    def before_cross(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Returns what attends to the encoder's states, of x behind self-attention."""
        return self._before(ctx, x, self.cross_norm)

    def _before(self, ctx: ExecutionContext, x: Tensor, norm: Module) -> Tensor:
        return x if self.post_norm else norm(ctx, x)

    def _added(self, ctx: ExecutionContext, x: Tensor, change: Tensor, norm: Module) -> Tensor:
        total = ctx.ops.add(x, change)
        return norm(ctx, total) if self.post_norm else total


def cross_keys_values(ctx: ExecutionContext, layers: Iterable[Module], states: Tensor) -> tuple[KVCache, ...]:
    """Computes each layer's keys and values [B, N, S', H] of the encoder's states [B, S', D]."""
    crosses: list[KVCache] = []
    for layer in layers:
        assert isinstance(layer, CrossLayer)
        crosses.append(layer.cross_attn.keys_values(ctx, states))
    return tuple(crosses)
