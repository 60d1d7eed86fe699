"""Low-rank changes of linear layers (LoRA), computed beside their products."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from lang_core import ExecutionContext, Tensor


@dataclass(frozen=True, slots=True)
class LowRankChange:
    """Change of a linear layer's weight W [out, in] by ``scale * left @ right``.

    Attributes:
        right: A, f32 [r, in].
        left: B, f32 [rows, r].
        scale: factor of the product.
        rows: rows of B that are the layer's, in its order; all if None.
    """

    right: Tensor
    left: Tensor
    scale: float
    rows: Sequence[int] | None = None


@contextmanager
def low_rank_linears(ctx: ExecutionContext, changes: Mapping[str, LowRankChange]) -> Iterator[None]:
    """Adds ``scale * (x @ A.T) @ B.T`` to the products of linear layers within a ``with`` block.

    From Hu et al. 2021, arXiv:2106.09685. W is neither changed nor copied: it does not need a gradient, and the update
    is f32 for any dtype of W, so that a small change counts.

    Args:
        ctx: context that computes.
        changes: change of each layer, by the path of its weight.
    """

    def substitute(body: Callable[..., Any]) -> Callable[..., Any]:
        change = changes.get(_weight_of(ctx))
        if change is None:
            return body
        return lambda x, weight, bias: _sum(ctx, body(x, weight, bias), x, change)

    with ctx.substituting({"linear": substitute}):
        yield


@contextmanager
def noted_linears(ctx: ExecutionContext, paths: set[str]) -> Iterator[None]:
    """Adds the path of the weight of each linear layer that runs within a ``with`` block to a set."""

    def substitute(body: Callable[..., Any]) -> Callable[..., Any]:
        paths.add(_weight_of(ctx))
        return body

    with ctx.substituting({"linear": substitute}):
        yield


def _weight_of(ctx: ExecutionContext) -> str:
    return f"{ctx.module_path}.weight"


def _sum(ctx: ExecutionContext, product: Tensor, x: Tensor, change: LowRankChange) -> Tensor:
    ops = ctx.ops
    left = change.left if change.rows is None else _rows(ctx, change.left, np.asarray(change.rows, np.int32))
    narrow = ops.dot_general(ops.cast(x, "f32"), change.right, ((x.ndim - 1,), (1,)))
    added = ops.mul(ops.dot_general(narrow, left, ((x.ndim - 1,), (1,))), change.scale)
    return ops.cast(ops.add(ops.cast(product, "f32"), added), product.dtype)


def _rows(ctx: ExecutionContext, matrix: Tensor, rows: np.ndarray) -> Tensor:
    first, last = int(rows[0]), int(rows[-1])
    if np.array_equal(rows, np.arange(first, last + 1)):
        return ctx.ops.slice_axis(matrix, 0, first, last + 1)
    return ctx.ops.take(matrix, ctx.constant(rows), 0)
