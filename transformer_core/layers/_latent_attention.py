"""Attention over compressed keys and values."""

from lang_core import DType, ExecutionContext, Module, Tensor, as_dtype
from transformer_core.layers._attention_config import LatentAttentionConfig
from transformer_core.layers._cache import CacheLayout
from transformer_core.layers._indexer import LightningIndexer
from transformer_core.layers._kv_cache import KVCache, cache_spec, kv_layout
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm
from transformer_core.layers._rope import apply_rope
from transformer_core.layers._step import StepInputs, for_heads


class LatentAttention(Module):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), under Hugging Face's names.

    A token's keys and values of all heads are made from one compressed vector of ``rank`` numbers; a rotated part of
    the key is shared by all heads. The cache keeps just these two: for DeepSeek-V3 576 numbers per token and layer in
    place of 40,960. ``kv_b_proj`` is never applied to the cache: its key part goes to the query and its value part to
    the result (the paper's section 2.1.2), so that a step reads the cache and not an expansion of it. Scores then cost
    ``rank`` products in place of ``plain_size``.

    Args:
        config: sizes and options.
        dtype: dtype of the parameters.
    """

    def __init__(self, config: LatentAttentionConfig, *, dtype: DType | str = "f32") -> None:
        self.config = config
        size, heads, rank, bias = config.size, config.heads, config.query_rank, config.bias
        queries = heads * config.query_size
        self.q_proj = Linear(size, queries, dtype=dtype) if rank is None else None
        self.q_a_proj = None if rank is None else Linear(size, rank, bias=bias, dtype=dtype)
        self.q_a_layernorm = None if rank is None else RMSNorm(rank, dtype=dtype)
        self.q_b_proj = None if rank is None else Linear(rank, queries, dtype=dtype)
        self.kv_a_proj_with_mqa = Linear(size, config.rank + config.rotated_size, bias=bias, dtype=dtype)
        self.kv_a_layernorm = RMSNorm(config.rank, dtype=dtype)
        inner = heads * (config.plain_size + config.value_size)
        self.kv_b_proj = Linear(config.rank, inner, dtype=dtype, packable=False)
        self.o_proj = Linear(heads * config.value_size, size, bias=config.output_bias, dtype=dtype)
        own = config.indexer
        self.indexer = None if own is None or rank is None else LightningIndexer(own, size, rank, dtype=dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: KVCache | None = None
    ) -> tuple[Tensor, KVCache | None]:
        """Attends over the tokens of x, or over the cache with them in it.

        Args:
            ctx: context that computes.
            x: [B, T, D].
            step: inputs that the layers share; with ``places`` if there is a cache.
            cache: cache of this layer, or None: as key the rotated part [B, 1, S, R], and the indexer's key after it,
                as value the compressed one [B, 1, S, rank].

        Returns:
            [B, T, D], and the updated cache.
        """
        ops, config = ctx.ops, self.config
        batch, queries, _ = x.shape
        asked = self._compressed(ctx, x)
        q = ops.reshape(self._queries(ctx, asked), (batch, queries, config.heads, config.query_size))
        q_plain, q_rotated = ops.split(q, (config.plain_size, config.rotated_size), 3)
        compressed, k = ops.split(self.kv_a_proj_with_mqa(ctx, x), (config.rank, config.rotated_size), 2)
        cos, sin = for_heads(ctx, step.cos, 4), for_heads(ctx, step.sin, 4)
        q_rotated = apply_rope(ctx, ops.transpose(q_rotated, (0, 2, 1, 3)), cos, sin, config.rope_mode)
        k = apply_rope(ctx, ops.reshape(k, (batch, 1, queries, -1)), cos, sin, config.rope_mode)
        v = ops.reshape(self.kv_a_layernorm(ctx, compressed), (batch, 1, queries, config.rank))
        q_rotated, k, v = ctx.tag(q_rotated, "q_rotated"), ctx.tag(k, "k_rotated"), ctx.tag(v, "kv_compressed")
        if self.indexer is not None:
            k = ops.concat([k, self.indexer.keys(ctx, x, step, config.rope_mode)], 3)
        if cache is not None and step.places:
            places = step.places[None]
            cache = cache.updated(ctx, k, v, places)
            k, v = places.seen(ctx, cache.key), places.seen(ctx, cache.value)
        bias = step.biases[None]
        over = None if bias is None else for_heads(ctx, bias, 4)
        if self.indexer is not None:
            # Queries are 0 where the other part of a key lies, so that nothing cuts the cache's keys.
            zeros = ops.broadcast(ops.constant(0.0, k.dtype), (*q_rotated.shape[:3], self.indexer.config.size))
            q_rotated = ops.concat([q_rotated, zeros], 3)
            over = self.indexer.hidden(ctx, x, asked, k, step, config.rope_mode, over)
        heads = self._attended(ctx, q_plain, q_rotated, k, v, over)
        return self.o_proj(ctx, ops.reshape(heads, (batch, queries, -1))), cache

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout: as keys the rotated part [B, 1, S, R], as values compressed vectors [B, 1, S, rank].

        The indexer's keys follow the rotated part.
        """
        config, dtype = self.config, self.kv_b_proj.weight.spec.dtype
        rotated = config.rotated_size + (0 if self.indexer is None else self.indexer.config.size)
        key, value = (cache_spec(batch, 1, capacity, size, dtype) for size in (rotated, config.rank))
        return kv_layout(key, value)

    def _compressed(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, D] to compressed queries [B, T, rank]; x itself if they are not compressed."""
        if self.q_a_proj is None or self.q_a_layernorm is None:
            return x
        return self.q_a_layernorm(ctx, self.q_a_proj(ctx, x))

    def _queries(self, ctx: ExecutionContext, compressed: Tensor) -> Tensor:
        """Maps compressed queries to [B, T, N (plain + R)]."""
        projection = self.q_proj if self.q_b_proj is None else self.q_b_proj
        return compressed if projection is None else projection(ctx, compressed)

    def _attended(
        self, ctx: ExecutionContext, q_plain: Tensor, q_rotated: Tensor, k: Tensor, v: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Attends with q_plain [B, T, N, plain], q_rotated [B, N, T, R], k [B, 1, S, R], v [B, 1, S, rank].

        Returns:
            [B, T, N, value].
        """
        ops, config = ctx.ops, self.config
        batch, _, keys, _ = k.shape
        k, v = ops.reshape(k, (batch, keys, -1)), ops.reshape(v, (batch, keys, -1))
        up = ops.reshape(ctx.parameter(self.kv_b_proj.weight), (config.heads, -1, config.rank))
        sizes = config.plain_size, config.value_size
        up_key, up_value = ops.split(up, sizes, 1)  # [N, plain, rank], [N, value, rank]
        wide = as_dtype(v.dtype).accumulation
        q_latent = ops.dot_general(q_plain, up_key, ((3,), (1,)), ((2,), (0,)))  # [N, B, T, rank]
        scores = ops.add(
            ops.dot_general(q_latent, v, ((3,), (2,)), ((1,), (0,)), dtype=wide),  # [B, N, T, S]
            ops.dot_general(q_rotated, k, ((3,), (2,)), ((0,), (0,)), dtype=wide),
        )
        scores = ops.mul(scores, config.scale)
        scores = ctx.tag(scores if bias is None else ops.add(scores, bias), "scores", detail=True)
        weights = ops.cast(ops.softmax(scores), v.dtype)
        latent = ops.dot_general(weights, v, ((3,), (1,)), ((0,), (0,)))  # [B, N, T, rank]
        heads = ops.dot_general(latent, up_value, ((3,), (2,)), ((1,), (0,)))  # [N, B, T, value]
        return ops.transpose(heads, (1, 2, 0, 3))
