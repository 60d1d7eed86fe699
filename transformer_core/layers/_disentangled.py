"""Disentangled attention (He et al. 2021, arXiv:2006.03654): scores of contents and of relative positions."""

import math
from dataclasses import dataclass

import numpy as np

from lang_core import DType, ExecutionContext, Tensor, checked_choices, f32
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._linear import Linear
from transformer_core.layers._multi_head_attention import MultiHeadAttention, RopeTables


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class DisentangledConfig:
    """Configuration of the relative positions.

    Attributes:
        span: A; there are embeddings of 2 A relative positions.
        longest: distance of the last bucket.
        buckets: whether distances above A / 2 share buckets by their logarithm.
        query: whether contents of queries are compared with positions of keys (``c2p``).
        key: whether contents of keys are compared with positions of queries (``p2c``).
        key_biases: whether projections of keys have biases (not in DeBERTa's first version).
        shared: whether positions have the projections of contents.
        normed: whether a norm precedes the projections of positions.
    """

    span: int
    longest: int
    buckets: bool
    query: bool
    key: bool
    shared: bool
    normed: bool
    key_biases: bool = True

    @property
    def terms(self) -> int:
        """Number of terms of a score."""
        return 1 + self.query + self.key

    def rows(self, tokens: int) -> np.ndarray:
        """Returns the rows i32 [2 T - 1] of the embeddings for distances 1 - T to T - 1 of a key from a query."""
        distances = -np.arange(1 - tokens, tokens)
        if self.buckets:
            distances = log_buckets(distances, self.span, self.longest)
        return np.clip(distances + self.span, 0, 2 * self.span - 1).astype(np.int32)


def log_buckets(distances: np.ndarray, span: int, longest: int) -> np.ndarray:
    """Returns distances, of which those above ``span / 2`` grow with the logarithm only.

    >>> log_buckets(np.array([-100, -3, 0, 4, 9, 100]), 8, 32).tolist()
    [-9, -3, 0, 4, 6, 9]
    """
    middle = span // 2
    apart = np.where(np.abs(distances) < middle, middle - 1, np.abs(distances)).astype(np.float32)
    share = np.log(apart / np.float32(middle)) / np.log(np.float32((longest - 1) / middle))
    grown = np.ceil(share * np.float32(middle - 1)) + middle
    return np.where(apart <= middle, distances, grown * np.sign(distances)).astype(np.int64)


class DisentangledAttention(MultiHeadAttention):
    """Attention of whole heads with relative positions.

    In place of RoPE's tables ``forward`` takes the embeddings of relative positions [2 A, D], and their rows i32
    [T, S] for each query and key.
    """

    def __init__(self, size: int, heads: int, config: DisentangledConfig, *, dtype: DType | str = "f32") -> None:
        head_size = size // heads
        scale = 1 / math.sqrt(head_size * config.terms)
        super().__init__(size, heads, key_bias=config.key_biases, scale=scale, dtype=dtype)
        self.config = config
        apart = not config.shared
        self.pos_k_proj = Linear(size, size, bias=config.key_biases, dtype=dtype) if apart and config.query else None
        self.pos_q_proj = Linear(size, size, bias=True, dtype=dtype) if apart and config.key else None

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        bias: Tensor | None = None,
        tables: RopeTables | None = None,
        key_places: Tensor | None = None,
    ) -> Tensor:
        """Self-attention of x [B, T, D]: [B, T, D]; ``tables`` as of the class, the others as of the base class."""
        assert tables is not None  # the stack of such layers has some
        memory = self.keys_values(ctx, x)
        if key_places is not None:
            memory = KVCache(ctx.ops.take(memory.key, key_places, 2), ctx.ops.take(memory.value, key_places, 2))
        relative = self._relative(ctx, self._heads(ctx, self.q_proj(ctx, x)), memory.key, *tables)
        bias = relative if bias is None else ctx.ops.add(relative, bias)
        return self.attend(ctx, x, memory, bias, skips=key_places is not None)

    def _relative(self, ctx: ExecutionContext, q: Tensor, k: Tensor, embeddings: Tensor, rows: Tensor) -> Tensor:
        """Returns the scores f32 [B, N, 1, T, S] of relative positions, of q [B, N, T, H] and k [B, N, S, H]."""
        ops, (queries, keys), count = ctx.ops, rows.shape, 2 * self.config.span
        scores: list[Tensor] = []
        if self.config.query:
            places = ops.add(rows, ops.mul(ops.iota((queries, 1), 0), count))
            scores.append(self._chosen(ctx, q, self.pos_k_proj or self.k_proj, embeddings, places))
        if self.config.key:
            places = ops.add(rows, ops.mul(ops.iota((1, keys), 1), count))
            scores.append(self._chosen(ctx, k, self.pos_q_proj or self.q_proj, embeddings, places))
        total = scores[0] if len(scores) == 1 else ops.add(scores[0], scores[1])
        return ops.reshape(ops.mul(total, self.scale or 1.0), (q.shape[0], self.heads, 1, queries, keys))

    def _chosen(self, ctx: ExecutionContext, x: Tensor, matrix: Linear, embeddings: Tensor, places: Tensor) -> Tensor:
        """Returns products f32 [B, N, T S] of heads [B, N, M, H] with positions, at places i32 [T, S] of [M, 2 A]."""
        ops, (batch, heads, items, _) = ctx.ops, x.shape
        projected = matrix(ctx, embeddings)
        positions = ops.reshape(projected, (projected.shape[0], heads, self.head_size))
        products = ops.dot_general(x, positions, ((3,), (2,)), ((1,), (1,)))  # [N, B, M, 2 A]
        flat = ops.reshape(ops.transpose(products, (1, 0, 2, 3)), (batch, heads, items * projected.shape[0]))
        return ops.cast(ops.take(flat, ops.reshape(places, (-1,)), 2), f32)


def relative_rows(ctx: ExecutionContext, config: DisentangledConfig, distances: Tensor) -> Tensor:
    """Returns the rows i32 [T, S] of the embeddings for distances i32 [T, S], of a key's place less a query's."""
    tokens = max(distances.shape)
    places = ctx.ops.clamp(ctx.ops.add(distances, tokens - 1), 0, 2 * tokens - 2)
    return ctx.ops.take(ctx.ops.constant(config.rows(tokens)), places)
