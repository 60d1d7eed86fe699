"""Masks: the keys that a query may see."""

from typing import Final

from lang_core import ExecutionContext, OpError, Tensor, checked_choices

# Far below every score, and finite: sums with it stay numbers.
_HIDDEN: Final = -1e30


@checked_choices
def causal_mask(
    ctx: ExecutionContext,
    queries: int,
    keys: int,
    *,
    position: Tensor | int | None = None,
    window: int | None = None,
    chunked: bool = False,
    ring: bool = False,
) -> Tensor:
    """Returns a mask, true where a query may see a key: itself and those before it, within the window.

    Args:
        ctx: context that computes.
        queries: T.
        keys: S.
        position: place of the first query among the keys, an int, a rank-0 i32 tensor, or i32 [B] for different
            lengths; ``S - T`` if None, so that the last query stands at the last key.
        window: number of keys that a query sees, itself included; all before it if None.
        chunked: whether windows do not slide: positions 0 to ``window - 1`` see one another, then the next as many, ..
        ring: whether a key lies at its position mod S, and S keys up to the last query's are there.

    Returns:
        bool [T, S]; [B, T, S] if each sequence has its own position.

    Raises:
        OpError: there are more queries than keys without a position, or the window is below 1.
    """
    ops = ctx.ops
    if position is None and queries > keys:
        raise OpError(f"causal_mask: {queries} queries for {keys} keys: pass position=, or as many keys as queries")
    if window is not None and window < 1:
        raise OpError(f"causal_mask: a window has 1 key or more; found {window}")
    rows = ops.iota((queries, 1), 0)
    first = keys - queries if position is None else position
    if isinstance(first, Tensor) and first.ndim:
        first = ops.reshape(first, (*first.shape, 1, 1))
    if not isinstance(first, int) or first:
        rows = ops.add(rows, first)
    columns = ops.iota((1, keys), 1)
    if ring:
        columns = _ring_positions(ctx, columns, ops.add(first, queries - 1), keys)
    visible = ops.less_equal(columns, rows)
    if ring:
        visible = ops.logical_and(visible, ops.greater_equal(columns, 0))
    if window is None or (window >= keys and not ring):
        return visible
    if chunked:
        return ops.logical_and(visible, ops.greater_equal(columns, ops.sub(rows, ops.rem(rows, window))))
    return ops.logical_and(visible, ops.greater(columns, ops.sub(rows, window)))


def _ring_positions(ctx: ExecutionContext, places: Tensor, last: Tensor, capacity: int) -> Tensor:
    """Returns positions of the keys in places [1, S]: the greatest p <= last with ``p mod S = place``, else below 0."""
    ops = ctx.ops
    return ops.sub(last, ops.rem(ops.add(ops.sub(last, places), capacity), capacity))


def mask_bias(ctx: ExecutionContext, mask: Tensor) -> Tensor:
    """Returns the bias that a mask adds to scores: f32 of its shape, 0 where it is true and -1e30 elsewhere.

    One addition per layer takes the place of two selections. A row without any true must not occur: its softmax is
    spread evenly. ``ctx.ops.attention`` with the mask itself gives zeros there.
    """
    return ctx.ops.select(mask, ctx.ops.constant(0.0, "f32"), ctx.ops.constant(_HIDDEN, "f32"))


def padding_bias(ctx: ExecutionContext, mask: Tensor) -> Tensor:
    """Returns the bias that hides keys that are padding.

    Args:
        ctx: context that computes.
        mask: integers [B, S], 0 where a key is padding; every row has a key that is not.

    Returns:
        f32 [B, 1, 1, 1, S], for ``grouped_attention``.
    """
    is_real = ctx.ops.not_equal(mask, 0)
    return mask_bias(ctx, ctx.ops.reshape(is_real, (mask.shape[0], 1, 1, 1, mask.shape[1])))


def token_distances(ctx: ExecutionContext, tokens: int) -> Tensor:
    """Returns i32 [T, T], the place of each key less that of the query."""
    return ctx.ops.sub(ctx.ops.iota((1, tokens), 1), ctx.ops.iota((tokens, 1), 0))


def near_mask(ctx: ExecutionContext, distances: Tensor, distance: int) -> Tensor:
    """Returns a mask bool [T, S], true where a key is at most ``distance`` away, on either side."""
    return ctx.ops.less_equal(ctx.ops.abs(distances), distance)


def near_bias(ctx: ExecutionContext, distances: Tensor, distance: int, bias: Tensor) -> Tensor:
    """Returns a bias, broadcast to [.., T, S], that also hides keys further away than ``distance``, on either side."""
    return ctx.ops.select(near_mask(ctx, distances, distance), bias, ctx.ops.constant(_HIDDEN, "f32"))
