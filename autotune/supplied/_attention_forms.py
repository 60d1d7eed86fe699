"""Attention of query heads in groups: as one product per key head, or block by block with a running softmax."""

from typing import Any, Final

from lang_core import ExecutionContext, Tensor, as_dtype

# Score of masked keys, as in lang_core's softmax: far below every score, and finite.
_MASKED: Final = -1e30


def causal(ctx: ExecutionContext, queries: int, keys: int, rows: range, columns: range) -> Tensor:
    """Returns bool [rows, columns]: which keys each query, at the last positions, may attend to."""
    row = ctx.ops.add(ctx.ops.iota((len(rows), 1), 0), rows.start + keys - queries)
    return ctx.ops.greater_equal(row, ctx.ops.add(ctx.ops.iota((1, len(columns)), 1), columns.start))


def merged(ctx: ExecutionContext, q: Any, k: Any, v: Any, mask: Any, bias: Any, scale: float, dtype: Any) -> Tensor:
    """Computes attention with the query heads of a key head as rows of one product.

    Args:
        ctx: context.
        q: [B, K, G, T, H].
        k: [B, K, S, H].
        v: [B, K, S, H'].
        mask: bool, broadcast to [B, K, G, T, S], or None.
        bias: added to scores; broadcast as the mask, or None.
        scale: factor of scores.
        dtype: dtype of the result.

    Returns:
        [B, K, G, T, H'].
    """
    ops = ctx.ops
    batch, shared, group, queries, size = q.shape
    keys = k.shape[2]
    rows = ops.reshape(q, (batch, shared, group * queries, size))
    scores = ops.mul(
        ops.dot_general(rows, k, ((3,), (3,)), ((0, 1), (0, 1)), dtype=as_dtype(q.dtype).accumulation), scale
    )
    if mask is not None or bias is not None:
        scores = ops.reshape(scores, (batch, shared, group, queries, keys))
        scores = scores if bias is None else ops.add(scores, bias)
    weights = ops.cast(ops.softmax(scores, -1, where=mask), v.dtype)
    weights = ops.reshape(weights, (batch, shared, group * queries, keys))
    result = ops.dot_general(weights, v, ((3,), (2,)), ((0, 1), (0, 1)), dtype=as_dtype(q.dtype).accumulation)
    return ops.cast(ops.reshape(result, (batch, shared, group, queries, v.shape[3])), dtype)


def online(
    ctx: ExecutionContext,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    bias: Any,
    scale: float,
    dtype: Any,
    *,
    blocks: tuple[int, int],
    is_causal: bool = False,
) -> Tensor:
    """Computes attention block by block (Milakov, Gimelshein 2018, arXiv:1805.02867; Dao 2023, arXiv:2307.08691).

    Args:
        ctx: context.
        q: [B, K, G, T, H].
        k: [B, K, S, H].
        v: [B, K, S, H'].
        mask: bool, broadcast to [B, K, G, T, S], of rank 2 or more, or None.
        bias: added to scores; broadcast as the mask, or None.
        scale: factor of scores.
        dtype: dtype of the result.
        blocks: number of queries, and of keys, of a block.
        is_causal: whether the queries are at the last keys and do not attend to later ones; blocks that are masked as a
            whole are skipped.

    Returns:
        [B, K, G, T, H'].
    """
    ops = ctx.ops
    queries, keys = q.shape[3], k.shape[2]
    bias = None if bias is None else ops.maximum(bias, _MASKED)  # -inf - -inf is NaN
    done: list[Tensor] = []
    for start in range(0, queries, blocks[0]):
        rows = range(start, min(start + blocks[0], queries))
        part = ops.slice_axis(q, 3, rows.start, rows.stop)
        state: tuple[Tensor, Tensor, Tensor] | None = None
        for first in range(0, keys, blocks[1]):
            columns = range(first, min(first + blocks[1], keys))
            if is_causal and first > rows.stop - 1 + keys - queries and state is not None:
                break  # masked for all of these rows
            k_part = ops.slice_axis(k, 2, columns.start, columns.stop)
            scores = ops.dot_general(part, k_part, ((4,), (3,)), ((0, 1), (0, 1)), dtype=as_dtype(q.dtype).accumulation)
            scores = ops.mul(scores, scale)
            scores = scores if bias is None else ops.add(scores, _block(ctx, bias, rows, columns))
            seen = None if mask is None else _block(ctx, mask, rows, columns)
            if is_causal and columns.stop - 1 > rows.start + keys - queries:
                visible = causal(ctx, queries, keys, rows, columns)
                seen = visible if seen is None else ops.logical_and(seen, visible)
            state = _add_block(ctx, scores, seen, ops.slice_axis(v, 2, columns.start, columns.stop), state)
        if state is not None:
            _, total, mixed = state
            done.append(ops.cast(ops.div(mixed, ops.maximum(total, 1e-30)), dtype))
    return done[0] if len(done) == 1 else ops.concat(done, 3)


def _add_block(
    ctx: ExecutionContext, scores: Tensor, seen: Tensor | None, v: Any, state: tuple[Tensor, Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Adds a block of keys to the running largest score, sum of exponentials and weighted sum of values.

    Args:
        ctx: context.
        scores: [B, K, G, t, s].
        seen: bool, broadcast to scores.
        v: [B, K, s, H'].
        state: largest score and sum [B, K, G, t, 1], weighted sum [B, K, G, t, H']; None before the first block.
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


def _block(ctx: ExecutionContext, x: Tensor, rows: range, columns: range) -> Tensor:
    """Slices [.., T, S] to some queries and keys; axes of size 1 stay."""
    for axis, part in ((-2, rows), (-1, columns)):
        if x.shape[axis] != 1:
            x = ctx.ops.slice_axis(x, x.ndim + axis, part.start, part.stop)
    return x
