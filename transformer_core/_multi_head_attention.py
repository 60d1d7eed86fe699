"""Self-attention and cross-attention with a key/value head for each query head."""

from lang_core import ConfigError, DType, ExecutionContext, Module, Tensor, checked_choices
from transformer_core._attention import grouped_attention
from transformer_core._kv_cache import KVCache
from transformer_core._linear import Linear


@checked_choices
class MultiHeadAttention(Module):
    """Attention without rotation (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2).

    Self-attention is ``attention(ctx, x, bias)``. For cross-attention, ``keys_values`` of the other sequence is
    computed once and ``attend`` called as often as need be.

    Args:
        size: D.
        heads: N, a divisor of D.
        qkv_bias: whether the projections of queries, keys and values have biases.
        key_bias: whether the projection of keys has a bias, where that differs (Whisper).
        output_bias: whether the output projection has one.
        dtype: dtype of the parameters.

    Raises:
        ConfigError: N does not divide D.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        qkv_bias: bool = True,
        key_bias: bool | None = None,
        output_bias: bool = True,
        dtype: DType | str = "f32",
    ) -> None:
        if size % heads:
            raise ConfigError(f"attention: {heads} heads do not divide the model size {size}")
        self.heads, self.head_size = heads, size // heads
        self.q_proj = Linear(size, size, bias=qkv_bias, dtype=dtype)
        self.k_proj = Linear(size, size, bias=qkv_bias if key_bias is None else key_bias, dtype=dtype)
        self.v_proj = Linear(size, size, bias=qkv_bias, dtype=dtype)
        self.o_proj = Linear(size, size, bias=output_bias, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Self-attention of x [B, T, D], ``bias`` broadcast to [B, N, 1, T, T]: [B, T, D]."""
        return self.attend(ctx, x, self.keys_values(ctx, x), bias)

    def keys_values(self, ctx: ExecutionContext, memory: Tensor) -> KVCache:
        """Computes keys and values [B, N, S, H] of ``memory`` [B, S, D]."""
        return KVCache(self._heads(ctx, self.k_proj(ctx, memory)), self._heads(ctx, self.v_proj(ctx, memory)))

    def attend(self, ctx: ExecutionContext, x: Tensor, memory: KVCache, bias: Tensor | None = None) -> Tensor:
        """Attends from x [B, T, D] to keys and values [B, N, S, H].

        Args:
            ctx: context that computes.
            x: [B, T, D].
            memory: result of ``keys_values``.
            bias: added to the scores, broadcast to [B, N, 1, T, S]; see ``mask_bias``.

        Returns:
            [B, T, D].
        """
        ops = ctx.ops
        batch, queries, size = x.shape
        q = ops.reshape(self._heads(ctx, self.q_proj(ctx, x)), (batch, self.heads, 1, queries, self.head_size))
        heads = grouped_attention(ctx, q, memory.key, memory.value, bias)  # [B, N, 1, T, H]
        heads = ops.transpose(ops.reshape(heads, (batch, self.heads, queries, self.head_size)), (0, 2, 1, 3))
        return self.o_proj(ctx, ops.reshape(heads, (batch, queries, size)))

    def _heads(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, D] to [B, N, T, H]."""
        apart = ctx.ops.reshape(x, (*x.shape[:2], self.heads, self.head_size))
        return ctx.ops.transpose(apart, (0, 2, 1, 3))
