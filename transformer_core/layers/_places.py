"""Places of new entries in caches: computed once per step, for all layers with caches of one kind."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lang_core import Argument, ExecutionContext, OpError, Tensor, TensorSpec
from transformer_core.layers._cache import row_taken

_MOST_TOKENS: Final = (1 << 31) - 1


class Places(ABC):
    """Places of T new entries of every sequence."""

    @abstractmethod
    def written(self, ctx: ExecutionContext, cache: Tensor, new: Tensor) -> Tensor:
        """Returns cache [B, K, S, H] with the entries new [B, K, T, H] in it."""

    @property
    def rows(self) -> Tensor | None:
        """Rows of the sequences in caches that have more, i32 [B], or pages [B, M]; None if these have B rows."""
        return None

    def capacity(self, cache: Tensor) -> int:
        """Returns the positions that a sequence has in a cache [B, K, S, H]: S."""
        return cache.shape[2]

    def seen(self, ctx: ExecutionContext, cache: Tensor) -> Tensor:
        """Returns the entries of the sequences, [B, K, S, H], of a cache that may have more rows."""
        del ctx
        return cache


@dataclass(frozen=True, slots=True)
class Starts(Places):
    """Consecutive places, the same in all sequences.

    Attributes:
        at: rank-0 i32, the start along each axis of a cache; moved down if the entries would not fit.
    """

    at: tuple[Tensor, Tensor, Tensor, Tensor]

    def written(self, ctx: ExecutionContext, cache: Tensor, new: Tensor) -> Tensor:
        """Returns cache [B, K, S, H] with the entries new [B, K, T, H], written by one ``dynamic_update_slice``."""
        return ctx.ops.dynamic_update_slice(cache, new, self.at)


@dataclass(frozen=True, slots=True)
class RowPlaces(Places):
    """Places that differ between sequences.

    Attributes:
        at: i32 [B, T], distinct within a sequence.
        is_real: bool [B, T], true where an entry is not padding; padding is not written. All true if None.
    """

    at: Tensor
    is_real: Tensor | None = None

    def written(self, ctx: ExecutionContext, cache: Tensor, new: Tensor) -> Tensor:
        """Returns cache [B, K, S, H] with the entries new [B, K, T, H], written by one ``put``."""
        return ctx.ops.put(cache, self.at, new, 2, self.is_real)


@dataclass(frozen=True, slots=True)
class CacheRowPlaces(Places):
    """Places in some rows of caches that have more.

    Attributes:
        row: i32 of rank 0 or [B], rows of the sequences: distinct.
        listed: the same, i32 [B].
        lines: i32 [1, B K T], by K: numbers of the entries in a cache seen as a matrix of entries.
        is_real: bool [1, B K T], by K: true where an entry is not padding; padding is not written.
    """

    row: Tensor
    listed: Tensor
    lines: Mapping[int, Tensor]
    is_real: Mapping[int, Tensor]

    def written(self, ctx: ExecutionContext, cache: Tensor, new: Tensor) -> Tensor:
        """Writes the entries by one ``put``."""
        rows, heads, capacity, size = cache.shape
        matrix = ctx.ops.reshape(cache, (1, rows * heads * capacity, size))
        lines = self.lines[heads]
        matrix = ctx.ops.put(matrix, lines, ctx.ops.reshape(new, (*lines.shape, size)), 1, self.is_real[heads])
        return ctx.ops.reshape(matrix, cache.shape)

    @property
    def rows(self) -> Tensor:
        """``listed``."""
        return self.listed

    def seen(self, ctx: ExecutionContext, cache: Tensor) -> Tensor:
        """Copies the rows."""
        return row_taken(ctx, cache, self.row)


@dataclass(frozen=True, slots=True)
class PagePlaces(CacheRowPlaces):
    """Places in pages [P, K, S / M, H] of which each sequence has M: the table ``row`` and ``listed``, i32 [B, M]."""

    def capacity(self, cache: Tensor) -> int:
        """Returns S."""
        return cache.shape[2] * self.listed.shape[1]

    def seen(self, ctx: ExecutionContext, cache: Tensor) -> Tensor:
        """Copies the pages."""
        ops, (batch, pages) = ctx.ops, self.listed.shape
        _, heads, page, size = cache.shape
        taken = ops.reshape(
            ops.take(cache, ops.reshape(self.listed, (batch * pages,))), (batch, pages, heads, page, size)
        )
        return ops.reshape(ops.transpose(taken, (0, 2, 1, 3, 4)), (batch, heads, pages * page, size))


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
        positions: i32 [B, T], or [T] if all sequences have the same, consecutive; beyond the capacity they begin
            again at 0.
        batch: B.
        capacity: capacity of the caches, at least T.
        count: i32 [B], number of entries that are not padding; all if None.
    """
    ops = ctx.ops
    tokens = positions.shape[-1]
    at = ops.rem(positions, capacity)
    is_real = None
    if count is not None:
        is_real = ops.less(ops.iota((1, tokens), 1), ops.reshape(count, (batch, 1)))
    return RowPlaces(at if at.ndim == 2 else ops.broadcast(at, (batch, tokens)), is_real)


def cache_row_places(
    ctx: ExecutionContext, row: Tensor, kv_heads: Iterable[int], places: RowPlaces, capacity: int
) -> CacheRowPlaces:
    """Returns the places of entries in some rows of caches.

    Args:
        ctx: context that computes.
        row: i32 of rank 0 or [B].
        kv_heads: each K that caches have.
        places: places within the rows.
        capacity: capacity of the caches.

    Raises:
        OpError: padding is not supported.
    """
    batch = places.at.shape[0]
    lines, is_real = _lines(ctx, ctx.ops.reshape(row, (batch, 1)), kv_heads, places, capacity)
    return CacheRowPlaces(row, ctx.ops.reshape(row, (batch,)), lines, is_real)


def page_places(
    ctx: ExecutionContext, table: Tensor, kv_heads: Iterable[int], places: RowPlaces, page: int
) -> PagePlaces:
    """Returns the places of entries in pages.

    Args:
        ctx: context that computes.
        table: i32 [B, M], the pages of each sequence.
        kv_heads: each K that caches have.
        places: places within the sequences.
        page: positions of a page.

    Raises:
        OpError: padding is not supported.
    """
    ops, (batch, pages) = ctx.ops, table.shape
    begins = ops.reshape(ops.mul(ops.iota((batch,)), pages), (batch, 1))
    entry = ops.add(begins, ops.quotient(places.at, page))
    row = ops.take(ops.reshape(table, (batch * pages,)), entry)
    within = RowPlaces(ops.rem(places.at, page), places.is_real)
    lines, is_real = _lines(ctx, row, kv_heads, within, page)
    return PagePlaces(table, table, lines, is_real)


def _lines(
    ctx: ExecutionContext, row: Tensor, kv_heads: Iterable[int], places: RowPlaces, capacity: int
) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Returns by K the numbers of entries in rows i32 [B, 1] or [B, T] of caches, and which are not padding."""
    ops, (batch, tokens) = ctx.ops, places.at.shape
    if places.is_real is None:
        raise OpError("places in rows of caches: expected the number of real tokens: pass count=")
    row = ops.reshape(row, (batch, 1, row.shape[1]))
    at, mask = (ops.reshape(x, (batch, 1, tokens)) for x in (places.at, places.is_real))
    lines, is_real = {}, {}
    for heads in sorted(set(kv_heads)):
        begins = ops.mul(ops.add(ops.mul(row, heads), ops.iota((1, heads, 1), 1)), capacity)
        lines[heads] = ops.reshape(ops.add(begins, at), (1, batch * heads * tokens))
        is_real[heads] = ops.reshape(ops.broadcast(mask, (batch, heads, tokens)), (1, batch * heads * tokens))
    return lines, is_real


def row_arguments(
    tokens: int, capacity: int, cache_rows: int, rows: int | None, page: int | None = None
) -> list[Argument]:
    """Returns the arguments of a function that works on some rows of caches.

    They are ``row``, or the table ``pages`` i32 [B, M], ``position``, and ``last`` of several tokens or ``count`` of
    one: 0 if a row rests.

    Args:
        tokens: T.
        capacity: S; as padding is not written, only real entries must fit.
        cache_rows: number of rows that caches have.
        rows: B if each sequence has its own position; None if one sequence has it all.
        page: positions of each row of the caches, S / M, if these are pages.
    """
    position, row = _place("position", rows, (0, capacity - 1)), _place("row", rows, (0, cache_rows - 1))
    if page is not None:
        row = Argument("pages", TensorSpec((rows or 1, capacity // page), "i32"), bounds=row.bounds)
    if rows is None or tokens > 1:
        return [row, position, last_argument(tokens, rows)]
    return [row, position, _place("count", rows, (0, 1))]


def position_argument(tokens: int, capacity: int, rows: int | None = None) -> Argument:
    """Returns the argument ``position`` of a function that appends T tokens to caches of capacity S.

    Args:
        tokens: T.
        capacity: S.
        rows: B if each sequence has its own position; None if all share one.
    """
    return _place("position", rows, (0, capacity - (tokens if rows is None else 1)))


def last_argument(tokens: int, rows: int | None = None) -> Argument:
    """Returns the argument ``last``, the row of the last real token of T; -1, with ``rows``, stands for none."""
    return _place("last", rows, (0 if rows is None else -1, tokens - 1))


def length_argument(rows: int | None = None) -> Argument:
    """Returns the argument ``length`` of a function with length-dependent RoPE: the total tokens of a sequence.

    RoPE takes it, or the length after the call if that is more, so that 0 stands for the length after the call.
    """
    return _place("length", rows, (0, _MOST_TOKENS))


def _place(name: str, rows: int | None, bounds: tuple[int, int]) -> Argument:
    if rows is None:
        return Argument(name, TensorSpec((), "i32"), kind="scalar", bounds=bounds)
    return Argument(name, TensorSpec((rows,), "i32"), bounds=bounds)
