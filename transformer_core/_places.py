"""Where new entries go in caches: made once per step, for all layers whose caches are alike."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from lang_core import Argument, ExecutionContext, Tensor, TensorSpec


class Places(ABC):
    """Where the T entries of every sequence go."""

    @abstractmethod
    def written(self, ctx: ExecutionContext, cache: Tensor, new: Tensor) -> Tensor:
        """cache [B, K, S, H] with the entries new [B, K, T, H] in it."""


@dataclass(frozen=True, slots=True)
class Starts(Places):
    """One after the other, from the same place on in all sequences.

    Attributes:
        at: rank-0 i32, one per axis of a cache. A place from which the entries do not fit is moved down.
    """

    at: tuple[Tensor, Tensor, Tensor, Tensor]

    def written(self, ctx: ExecutionContext, cache: Tensor, new: Tensor) -> Tensor:
        """By one update."""
        return ctx.ops.dynamic_update_slice(cache, new, self.at)


@dataclass(frozen=True, slots=True)
class RowPlaces(Places):
    """At places of each sequence's own.

    Attributes:
        at: i32 [B, T], those of a sequence distinct.
        counts: bool [B, T], which entries count: the others leave what is in their places. All where None.
    """

    at: Tensor
    counts: Tensor | None = None

    def written(self, ctx: ExecutionContext, cache: Tensor, new: Tensor) -> Tensor:
        """By one ``put``."""
        return ctx.ops.put(cache, self.at, new, 2, self.counts)


def cache_starts(ctx: ExecutionContext, position: Tensor) -> Starts:
    """For entries from ``position`` (rank-0 i32) on, that of all sequences."""
    zero = ctx.ops.constant(0, position.dtype)
    return Starts((zero, zero, position, zero))


def row_places(
    ctx: ExecutionContext, positions: Tensor, batch: int, capacity: int, count: Tensor | None = None
) -> RowPlaces:
    """For entries at positions of each sequence's own, or in a ring.

    Args:
        ctx: where to compute.
        positions: i32 [B, T], or [T] where all sequences have the same; one after the other. Those beyond the capacity
            begin again at 0.
        batch: B.
        capacity: of the caches, not below T.
        count: i32 [B], how many of the entries count; all where None.
    """
    ops = ctx.ops
    tokens = positions.shape[-1]
    at = ops.rem(positions, capacity)
    counts = None
    if count is not None:
        counts = ops.less(ops.iota((1, tokens), 1), ops.reshape(count, (batch, 1)))
    return RowPlaces(at if at.ndim == 2 else ops.broadcast(at, (batch, tokens)), counts)


def position_argument(tokens: int, capacity: int, rows: int | None = None) -> Argument:
    """``position`` of a function that appends T tokens to caches of capacity S: of all sequences, or one for each of B.

    Args:
        tokens: T.
        capacity: S.
        rows: B where sequences have positions of their own.
    """
    return _place("position", rows, (0, capacity - (tokens if rows is None else 1)))


def last_argument(tokens: int, rows: int | None = None) -> Argument:
    """``last``, the row of the last of T tokens that counts; -1, where each sequence has its own, is none."""
    return _place("last", rows, (0 if rows is None else -1, tokens - 1))


def _place(name: str, rows: int | None, bounds: tuple[int, int]) -> Argument:
    if rows is None:
        return Argument(name, TensorSpec((), "i32"), kind="scalar", bounds=bounds)
    return Argument(name, TensorSpec((rows,), "i32"), bounds=bounds)
