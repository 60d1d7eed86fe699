"""Products of a few rows with the bits that they have in any number."""

from collections.abc import Callable
from typing import Final

from lang_core import ExecutionContext, Tensor
from transformer_core.family._sentence import first_places

_ROWS: Final = 4


def in_whole_rows(
    ctx: ExecutionContext, head: Callable[[ExecutionContext, Tensor], Tensor], x: Tensor, mask: Tensor
) -> Tensor:
    """Applies a head to vectors x [B, D] with rows of zeros up to a multiple of 4, and returns the first B rows.

    Compilers add up products of one row in another order than those of several. The rows are chosen by numbers that
    depend on the mask i32 [B, T], for compilers move a slice in front of the products.
    """
    ops, count = ctx.ops, x.shape[0]
    missing = -count % _ROWS
    if missing:
        x = ops.pad(x, (0, 0), (missing, 0))
    rows = ops.add(ops.iota((count,)), ops.minimum(first_places(ctx, mask), 0))
    return ops.take(head(ctx, x), rows)
