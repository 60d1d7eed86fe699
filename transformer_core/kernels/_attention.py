"""Attention: all scores at once, in two layouts, or block by block with a running softmax."""

from dataclasses import dataclass
from typing import Any, Final

from lang_core import ExecutionContext, OpError, Tensor, as_dtype, f32
from lang_core.kernels import Invocation, Kernel

# As lang_core's softmax: far below every score, and finite.
_MASKED: Final = -1e30
# Blocks are written out, so a graph has so many at most.
_MOST_BLOCKS: Final = 64


@dataclass(frozen=True)
class AttentionConfig:
    """How attention is computed.

    Attributes:
        form: ``grouped`` (``ctx.ops.attention``: the query heads of a key head are an axis), ``merged`` (they are rows
            of one product), or ``online`` (block by block: Milakov, Gimelshein 2018, arXiv:1805.02867; Dao 2023,
            arXiv:2307.08691; blocks that a causal mask hides are left out).
        queries: of a block, for ``online``.
        keys: of a block, for ``online``.
    """

    form: str = "grouped"
    queries: int = 0
    keys: int = 0


class AttentionKernel(Kernel[AttentionConfig, Tensor]):
    """``softmax(scale * q k^T, where mask) v``; see ``ctx.ops.attention``.

    Arguments of a call: q [B, N, T, H], k [B, K, S, H], v [B, K, S, H'], mask (bool, broadcast to [B, N, T, S], or
    None), and ``scale``, ``causal`` (query t stands at S - T + t, and sees no key after it).
    """

    op_id = "attention"

    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        mask: Any = None,
        *,
        cfg: AttentionConfig,
        ctx: ExecutionContext,
        scale: float | None = None,
        causal: bool = False,
    ) -> Tensor:
        """[B, N, T, H'] in q's dtype."""
        if len(q.shape) != 4 or len(k.shape) != 4 or q.shape[1] % max(k.shape[1], 1):
            raise OpError(
                f"attention of {tuple(q.shape)}, {tuple(k.shape)}: wanted q [B,N,T,H], k [B,K,S,H], K a divisor of N"
            )
        if cfg.form == "online":
            return _online(ctx, q, k, v, mask, cfg, _scale(q, scale), causal)
        if causal:
            seen = _causal(ctx, q.shape[2], k.shape[2], range(q.shape[2]), range(k.shape[2]))
            mask = seen if mask is None else ctx.ops.logical_and(mask, seen)
        if cfg.form == "merged":
            return _merged(ctx, q, k, v, mask, _scale(q, scale))
        return ctx.ops.attention(q, k, v, mask, scale=scale)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> AttentionConfig:
        """All scores at once."""
        return AttentionConfig()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[AttentionConfig]:
        """Both layouts, and blocks that are smaller than the whole."""
        queries, keys = inv.args[0].shape[2], inv.args[1].shape[2]
        found = [AttentionConfig(), AttentionConfig("merged")]
        for rows in (32, 64, 128, 256):
            for columns in (64, 128, 256, 512):
                blocks = -(-queries // rows) * -(-keys // columns)
                if rows <= columns and columns < keys and (rows < queries or queries <= 32) and blocks <= _MOST_BLOCKS:
                    found.append(AttentionConfig("online", rows, columns))
        return found


def _scale(q: Any, scale: float | None) -> float:
    return max(q.shape[-1], 1) ** -0.5 if scale is None else scale


def _causal(ctx: ExecutionContext, queries: int, keys: int, rows: range, columns: range) -> Tensor:
    """bool [rows, columns]: whether a query may look."""
    row = ctx.ops.add(ctx.ops.iota((len(rows), 1), 0), rows.start + keys - queries)
    return ctx.ops.greater_equal(row, ctx.ops.add(ctx.ops.iota((1, len(columns)), 1), columns.start))


def _merged(ctx: ExecutionContext, q: Any, k: Any, v: Any, mask: Any, scale: float) -> Tensor:
    ops = ctx.ops
    batch, heads, queries, size = q.shape
    shared, keys = k.shape[1], k.shape[2]
    wide = _wide(q)
    rows = ops.reshape(q, (batch, shared, heads // shared * queries, size))
    scores = ops.mul(ops.dot_general(rows, k, ((3,), (3,)), ((0, 1), (0, 1)), dtype=wide), scale)
    if mask is not None:
        scores = ops.reshape(scores, (batch, heads, queries, keys))
        weights = ops.reshape(ops.softmax(scores, -1, where=mask), (batch, shared, rows.shape[2], keys))
    else:
        weights = ops.softmax(scores, -1)
    result = ops.dot_general(ops.cast(weights, v.dtype), v, ((3,), (2,)), ((0, 1), (0, 1)), dtype=wide)
    return ops.cast(ops.reshape(result, (batch, heads, queries, v.shape[3])), q.dtype)


def _online(
    ctx: ExecutionContext, q: Any, k: Any, v: Any, mask: Any, cfg: AttentionConfig, scale: float, causal: bool
) -> Tensor:
    ops = ctx.ops
    batch, heads, queries, size = q.shape
    shared, keys = k.shape[1], k.shape[2]
    grouped = ops.reshape(q, (batch, shared, heads // shared, queries, size))
    wide = _wide(q)
    mask = None if mask is None else _per_group(ctx, mask, shared, heads // shared)
    done: list[Tensor] = []
    for start in range(0, queries, cfg.queries):
        rows = range(start, min(start + cfg.queries, queries))
        part = ops.slice_axis(grouped, 3, rows.start, rows.stop)
        state: tuple[Tensor, Tensor, Tensor] | None = None
        for first in range(0, keys, cfg.keys):
            columns = range(first, min(first + cfg.keys, keys))
            if causal and first > rows.stop - 1 + keys - queries and state is not None:
                break  # nobody in these rows sees it
            k_part = ops.slice_axis(k, 2, columns.start, columns.stop)
            scores = ops.dot_general(part, k_part, ((4,), (3,)), ((0, 1), (0, 1)), dtype=wide)
            seen = None if mask is None else _cut(ctx, _cut(ctx, mask, -2, rows), -1, columns)
            if causal and columns.stop - 1 > rows.start + keys - queries:
                visible = _causal(ctx, queries, keys, rows, columns)
                seen = visible if seen is None else ops.logical_and(seen, visible)
            v_part = ops.slice_axis(v, 2, columns.start, columns.stop)
            state = _add_block(ctx, ops.mul(scores, scale), seen, v_part, state)
        if state is not None:
            _, total, mixed = state
            done.append(ops.cast(ops.div(mixed, ops.maximum(total, 1e-30)), q.dtype))
    result = done[0] if len(done) == 1 else ops.concat(done, 3)
    return ops.reshape(result, (batch, heads, queries, v.shape[3]))


def _add_block(
    ctx: ExecutionContext, scores: Tensor, seen: Tensor | None, v: Any, state: tuple[Tensor, Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The largest score, the sum of exponentials and the sum of values so far, with one more block of keys.

    Args:
        ctx: where to compute.
        scores: [B, K, G, t, s].
        seen: bool, broadcast to scores.
        v: [B, K, s, H'].
        state: [B, K, G, t, 1], the same, and [B, K, G, t, H']; None before the first block.
    """
    ops = ctx.ops
    if seen is not None:
        scores = ops.select(seen, scores, _MASKED)
    largest = ops.max(scores, -1, keepdims=True)
    if state is not None:
        largest = ops.maximum(largest, state[0])
    weights = ops.exp(ops.sub(scores, largest))
    if seen is not None:
        weights = ops.select(seen, weights, 0.0)
    total = ops.sum(weights, -1, keepdims=True)
    mixed = ops.dot_general(ops.cast(weights, v.dtype), v, ((4,), (2,)), ((0, 1), (0, 1)), dtype=scores.dtype)
    if state is None:
        return largest, total, mixed
    shrink = ops.exp(ops.sub(state[0], largest))
    return largest, ops.add(ops.mul(state[1], shrink), total), ops.add(ops.mul(state[2], shrink), mixed)


def _wide(q: Any) -> Any:
    return f32 if as_dtype(q.dtype).itemsize == 2 else as_dtype(q.dtype)


def _per_group(ctx: ExecutionContext, mask: Any, shared: int, group: int) -> Tensor:
    """A mask that broadcasts to [B, N, T, S] as one that broadcasts to [B, K, G, T, S]."""
    shape = (*[1] * (4 - len(mask.shape)), *mask.shape)
    heads = (shared, group) if shape[1] > 1 else (1, 1)
    return ctx.ops.reshape(mask, (shape[0], *heads, *shape[2:]))


def _cut(ctx: ExecutionContext, mask: Tensor, axis: int, part: range) -> Tensor:
    if mask.shape[axis] == 1:
        return mask
    return ctx.ops.slice_axis(mask, mask.ndim + axis, part.start, part.stop)
