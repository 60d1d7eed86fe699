"""The lightning indexer of sparse attention (DeepSeek-V3.2, GLM-5): which keys a query may see."""

from dataclasses import dataclass

from lang_core import DType, ExecutionContext, Module, Tensor, checked_choices, f32
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import LayerNorm
from transformer_core.layers._rope import apply_rope
from transformer_core.layers._rope_config import RopeMode
from transformer_core.layers._step import StepInputs, for_heads

_NORM_EPS = 1e-6
_HIDDEN = -1e30


@checked_choices
@dataclass(frozen=True, slots=True)
class IndexerConfig:
    """Sizes and options of ``LightningIndexer``.

    Attributes:
        heads: number of its heads.
        size: dims of its queries and keys, of which the first ones are rotated as those of attention.
        chosen: number of keys that a query sees at most.
        rope_mode: layout of the rotated pairs.
    """

    heads: int
    size: int
    chosen: int
    rope_mode: RopeMode


class LightningIndexer(Module):
    """Scores of keys, of which a query sees the greatest ones only; under Hugging Face's names.

    A key's score is the sum over heads of ``weight * relu(query . key)``. Of equal scores, earlier keys are chosen.

    Args:
        config: sizes and options.
        size: D.
        query_rank: size of attention's compressed queries, of which the indexer makes its own.
        dtype: dtype of the parameters.
    """

    def __init__(self, config: IndexerConfig, size: int, query_rank: int, *, dtype: DType | str = "f32") -> None:
        self.config = config
        self.wq_b = Linear(query_rank, config.heads * config.size, dtype=dtype)
        self.wk = Linear(size, config.size, dtype=dtype)
        self.k_norm = LayerNorm(config.size, eps=_NORM_EPS, dtype=dtype)
        self.weights_proj = Linear(size, config.heads, dtype=dtype)

    def keys(self, ctx: ExecutionContext, x: Tensor, step: StepInputs, mode: RopeMode) -> Tensor:
        """Makes the keys of x [B, T, D]: [B, 1, T, size]; ``mode`` is the layout of the step's tables."""
        batch, tokens, _ = x.shape
        keys = ctx.ops.reshape(self.k_norm(ctx, self.wk(ctx, x)), (batch, 1, tokens, self.config.size))
        return self._rotated(ctx, keys, step, mode)

    def hidden(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        compressed: Tensor,
        keys: Tensor,
        step: StepInputs,
        mode: RopeMode,
        bias: Tensor | None,
    ) -> Tensor | None:
        """Returns the bias of attention's scores that hides the keys that are not chosen.

        Args:
            ctx: context that computes.
            x: [B, T, D].
            compressed: attention's compressed queries [B, T, rank].
            keys: [B, 1, S, R + size], of which attention's come first.
            step: inputs that the layers share.
            mode: layout of the step's tables.
            bias: bias of the scores, broadcast to [B, 1, T, S]; none if None.

        Returns:
            f32 [B, 1, T, S] with that bias, or the bias itself if all keys are chosen.
        """
        ops, config = ctx.ops, self.config
        batch, tokens, _ = x.shape
        if keys.shape[2] <= config.chosen:
            return bias
        queries = ops.reshape(self.wq_b(ctx, compressed), (batch, tokens, config.heads, config.size))
        queries = self._rotated(ctx, ops.transpose(queries, (0, 2, 1, 3)), step, mode)  # [B, heads, T, size]
        zeros = ops.broadcast(ops.constant(0.0, keys.dtype), (*queries.shape[:3], keys.shape[3] - config.size))
        queries, keys = ops.concat([zeros, queries], 3), ops.reshape(keys, (batch, *keys.shape[2:]))
        scores = ops.dot_general(queries, keys, ((3,), (2,)), ((0,), (0,)), dtype=f32)  # [B, heads, T, S]
        scores = ops.maximum(ops.mul(scores, config.size**-0.5), 0.0)
        weights = ops.mul(ops.cast(self.weights_proj(ctx, x), "f32"), config.heads**-0.5)  # [B, T, heads]
        merits = ops.dot_general(weights, scores, ((2,), (1,)), ((0, 1), (0, 2)))  # [B, T, S]
        if bias is not None:
            over = ops.broadcast(bias, (batch, 1, tokens, keys.shape[1]))
            merits = ops.add(merits, ops.reshape(over, merits.shape))
        merits = ctx.tag(merits, "index_scores", detail=True)
        hidden = ops.select(self._chosen(ctx, merits), ops.constant(0.0, "f32"), ops.constant(_HIDDEN, "f32"))
        hidden = ops.reshape(hidden, (batch, 1, *merits.shape[1:]))
        return hidden if bias is None else ops.add(hidden, bias)

    def _chosen(self, ctx: ExecutionContext, merits: Tensor) -> Tensor:
        """Returns which of merits [B, T, S] are the greatest ones, exactly as many as are chosen."""
        ops, count = ctx.ops, self.config.chosen
        best = ops.sort(ops.negate(merits), 2)  # stable: of equal ones, the first come first
        least, last = (ops.slice(part, (0, 0, count - 1), (*part.shape[:2], count)) for part in best)  # [B, T, 1]
        least = ops.negate(least)
        equal = ops.logical_and(ops.equal(merits, least), ops.less_equal(ops.iota((1, 1, merits.shape[2]), 2), last))
        return ops.logical_or(ops.greater(merits, least), equal)

    def _rotated(self, ctx: ExecutionContext, x: Tensor, step: StepInputs, mode: RopeMode) -> Tensor:
        """Rotates the first dims of x [B, .., T, size]."""
        ops, own = ctx.ops, self.config.rope_mode
        cos, sin = (self._table(ctx, table, mode) for table in (step.cos, step.sin))
        rotated = cos.shape[-1]
        first, rest = ops.split(x, (rotated, self.config.size - rotated), 3)
        first = apply_rope(ctx, first, for_heads(ctx, cos, 4), for_heads(ctx, sin, 4), own)
        return ops.concat([first, rest], 3)

    def _table(self, ctx: ExecutionContext, table: Tensor, mode: RopeMode) -> Tensor:
        """Returns a table [.., R] of attention's RoPE in the indexer's layout of pairs."""
        own = self.config.rope_mode
        if own is mode:
            return table
        ops, lead, pairs = ctx.ops, table.shape[:-1], table.shape[-1] // 2
        shape = (pairs, 2) if mode is RopeMode.INTERLEAVED else (2, pairs)
        axes = (*range(len(lead)), len(lead) + 1, len(lead))
        return ops.reshape(ops.transpose(ops.reshape(table, (*lead, *shape)), axes), table.shape)
