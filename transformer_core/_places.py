"""Places of new entries in caches: computed once per step, for all layers with caches of one kind."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from lang_core import Argument, ExecutionContext, Tensor, TensorSpec


class Places(ABC):
    """Places of T new entries of every sequence."""

    @abstractmethod
    def written(self, ctx: ExecutionContext, cache: Tensor, new: Tensor) -> Tensor:
        """Returns cache [B, K, S, H] with the entries new [B, K, T, H] in it."""


@dataclass(frozen=True, slots=True)
class Starts(Places):
    """Consecutive places, the same in all sequences.

    Attributes:
        at: rank-0 i32, the start along each axis of a cache; moved down where the entries would not fit.
    """

    at: tuple[Tensor, Tensor, Tensor, Tensor]

    def written(self, ctx: ExecutionContext, cache: Tensor, new: Tensor) -> Tensor:
        """Writes the entries by one ``dynamic_update_slice``."""
        return ctx.ops.dynamic_update_slice(cache, new, self.at)


@dataclass(frozen=True, slots=True)
class RowPlaces(Places):
    """Places that differ between sequences.

    Attributes:
        at: i32 [B, T], distinct within a sequence.
        is_real: bool [B, T], true where an entry is not padding; padding is not written. All true where None.
    """

    at: Tensor
    is_real: Tensor | None = None

    def written(self, ctx: ExecutionContext, cache: Tensor, new: Tensor) -> Tensor:
        """Writes the entries by one ``put``."""
        return ctx.ops.put(cache, self.at, new, 2, self.is_real)


def cache_starts(ctx: ExecutionContext, position: Tensor) -> Starts:
    """Returns the places of entries from ``position`` (rank-0 i32) on, the same in all sequences."""
    zero = ctx.ops.constant(0, position.dtype)
    return Starts((zero, zero, position, zero))


def row_places(
    ctx: ExecutionContext, positions: Tensor, batch: int, capacity: int, count: Tensor | None = None
) -> RowPlaces:
    """Returns the places of entries at positions that differ between sequences, or in a ring.

    Args:
        ctx: context that computes.
        positions: i32 [B, T], or [T] where all sequences have the same, consecutive; beyond the capacity they begin
            again at 0.
        batch: B.
        capacity: capacity of the caches, at least T.
        count: i32 [B], number of entries that are not padding; all where None.
    """
    ops = ctx.ops
    tokens = positions.shape[-1]
    at = ops.rem(positions, capacity)
    is_real = None
    if count is not None:
        is_real = ops.less(ops.iota((1, tokens), 1), ops.reshape(count, (batch, 1)))
    return RowPlaces(at if at.ndim == 2 else ops.broadcast(at, (batch, tokens)), is_real)


def position_argument(tokens: int, capacity: int, rows: int | None = None) -> Argument:
    """Returns the argument ``position`` of a function that appends T tokens to caches of capacity S.

    Args:
        tokens: T.
        capacity: S.
        rows: B where each sequence has its own position; None where all share one.
    """
    return _place("position", rows, (0, capacity - (tokens if rows is None else 1)))


def last_argument(tokens: int, rows: int | None = None) -> Argument:
    """Returns the argument ``last``, the row of the last real token of T; -1, with ``rows``, stands for none."""
    return _place("last", rows, (0 if rows is None else -1, tokens - 1))


def _place(name: str, rows: int | None, bounds: tuple[int, int]) -> Argument:
    if rows is None:
        return Argument(name, TensorSpec((), "i32"), kind="scalar", bounds=bounds)
    return Argument(name, TensorSpec((rows,), "i32"), bounds=bounds)
