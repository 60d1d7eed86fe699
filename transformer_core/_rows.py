"""One row of each sequence."""

from lang_core import ExecutionContext, Tensor


def row_of(ctx: ExecutionContext, x: Tensor, last: Tensor | None = None) -> Tensor:
    """A row of each sequence.

    Args:
        ctx: context that computes.
        x: [B, T, D].
        last: i32, the row: of rank 0, the same for all sequences, or [B]; T - 1 where None. What lies outside is
            brought inside.

    Returns:
        [B, D].
    """
    ops = ctx.ops
    batch, queries, size = x.shape
    if queries == 1:
        return ops.reshape(x, (batch, size))
    if last is None or not last.ndim:
        x = ops.dynamic_slice(x, (0, queries - 1 if last is None else last, 0), (batch, 1, size))
        return ops.reshape(x, (batch, size))
    rows = ops.add(ops.clamp(last, 0, queries - 1), ops.mul(ops.iota((batch,)), queries))
    return ops.take(ops.reshape(x, (batch * queries, size)), rows)
