"""Self-attention and cross-attention with a key/value head for each query head."""

from collections.abc import Sequence

import numpy as np

from lang_core import ConfigError, DType, ExecutionContext, Module, Tensor, checked_choices, f32
from transformer_core.layers._attention import fused_attention
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm
from transformer_core.layers._rope import apply_rope
from transformer_core.layers._rope_config import RopeMode

RopeTables = tuple[Tensor, Tensor]
"""Cos and sin of ``rope_tables``."""


@checked_choices
class MultiHeadAttention(Module):
    """Attention of whole heads (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2).

    Self-attention is ``attention(ctx, x, bias)``. For cross-attention, ``keys_values`` of the other sequence is
    computed once and ``attend`` called as often as need be.

    Args:
        size: D.
        heads: N.
        head_size: H; D / N if None.
        qkv_bias: whether the projections of queries, keys and values have biases.
        key_bias: whether the projection of keys has a bias, if that differs (Whisper).
        output_bias: whether the output projection has one.
        scale: factor of the scores; 1 / sqrt(H) if None.
        rope_mode: layout of the pairs that RoPE turns.
        norm_eps: eps of RMSNorms of queries and of keys, over all heads at once; None without.
        dtype: dtype of the parameters.

    Raises:
        ConfigError: N does not divide D, and H is missing.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        head_size: int | None = None,
        qkv_bias: bool = True,
        key_bias: bool | None = None,
        output_bias: bool = True,
        scale: float | None = None,
        rope_mode: RopeMode = RopeMode.SPLIT_HALF,
        norm_eps: float | None = None,
        dtype: DType | str = "f32",
    ) -> None:
        if head_size is None and size % heads:
            raise ConfigError(f"attention: {heads} heads do not divide the model size {size}")
        self.heads, self.head_size, self.scale = heads, head_size or size // heads, scale
        self._rope_mode = rope_mode
        inner = heads * self.head_size
        self.q_proj = Linear(size, inner, bias=qkv_bias, dtype=dtype)
        self.k_proj = Linear(size, inner, bias=qkv_bias if key_bias is None else key_bias, dtype=dtype)
        self.v_proj = Linear(size, inner, bias=qkv_bias, dtype=dtype)
        self.o_proj = Linear(inner, size, bias=output_bias, dtype=dtype)
        self.q_norm = None if norm_eps is None else RMSNorm(inner, eps=norm_eps, dtype=dtype)
        self.k_norm = None if norm_eps is None else RMSNorm(inner, eps=norm_eps, dtype=dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        bias: Tensor | None = None,
        tables: RopeTables | None = None,
        key_places: Tensor | None = None,
    ) -> Tensor:
        """Self-attention of x [B, T, D], ``bias`` broadcast to [B, N, 1, T, T], rotated by ``tables``: [B, T, D].

        With ``key_places`` i32 [S] there are S keys, those of these tokens, and ``bias`` is broadcast to
        [B, N, 1, T, S]. Each query must then see a key, and kernels skip keys that ``bias`` hides.
        """
        memory = self.keys_values(ctx, x, tables)
        if key_places is None:
            return self.attend(ctx, x, memory, bias, tables)
        moved = KVCache(ctx.ops.take(memory.key, key_places, 2), ctx.ops.take(memory.value, key_places, 2))
        return self.attend(ctx, x, moved, bias, tables, skips=True)

    def keys_values(self, ctx: ExecutionContext, memory: Tensor, tables: RopeTables | None = None) -> KVCache:
        """Computes keys and values [B, N, S, H] of ``memory`` [B, S, D]."""
        k = self.k_proj(ctx, memory)
        keys = self._heads(ctx, k if self.k_norm is None else self.k_norm(ctx, k), tables)
        return KVCache(keys, self._heads(ctx, self.v_proj(ctx, memory)))

    @checked_choices
    def attend(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        memory: KVCache,
        bias: Tensor | None = None,
        tables: RopeTables | None = None,
        *,
        skips: bool = False,
    ) -> Tensor:
        """Attends from x [B, T, D] to keys and values [B, N, S, H].

        Args:
            ctx: context that computes.
            x: [B, T, D].
            memory: result of ``keys_values``.
            bias: added to the scores, broadcast to [B, N, 1, T, S]; see ``mask_bias``.
            tables: cos and sin [T, H] that rotate the queries; None if they are not rotated.
            skips: whether kernels skip keys that ``bias`` hides; each query must see a key.

        Returns:
            [B, T, D].
        """
        ops = ctx.ops
        batch, queries, _ = x.shape
        q = self.q_proj(ctx, x)
        q = self._heads(ctx, q if self.q_norm is None else self.q_norm(ctx, q), tables)
        q = ops.reshape(q, (batch, self.heads, 1, queries, self.head_size))
        heads = fused_attention(ctx, q, memory.key, memory.value, bias, self.scale, skips=skips)  # [B, N, 1, T, H]
        heads = ops.transpose(ops.reshape(heads, (batch, self.heads, queries, self.head_size)), (0, 2, 1, 3))
        return self.o_proj(ctx, ops.reshape(heads, (batch, queries, self.heads * self.head_size)))

    def weights(self, ctx: ExecutionContext, x: Tensor, keys: Tensor, heads: Sequence[int]) -> Tensor:
        """Returns the weights f32 [B, M, T, S] of some heads, of x [B, T, D] on keys [B, N, S, H]."""
        ops, chosen = ctx.ops, ctx.ops.constant(np.array(heads, np.int32))
        q = self.q_proj(ctx, x)
        q = ops.take(self._heads(ctx, q if self.q_norm is None else self.q_norm(ctx, q)), chosen, 1)
        scores = ops.dot_general(q, ops.take(keys, chosen, 1), ((3,), (3,)), ((0, 1), (0, 1)))
        scale = self.head_size**-0.5 if self.scale is None else self.scale
        return ops.softmax(ops.mul(ops.cast(scores, f32), scale), 3)

    def _heads(self, ctx: ExecutionContext, x: Tensor, tables: RopeTables | None = None) -> Tensor:
        """Maps x [B, T, N H] to [B, N, T, H], rotated if there are tables."""
        apart = ctx.ops.reshape(x, (*x.shape[:2], self.heads, self.head_size))
        heads = ctx.ops.transpose(apart, (0, 2, 1, 3))
        return heads if tables is None else apply_rope(ctx, heads, *tables, self._rope_mode)
