"""Rows of a bundle's caches: the places of their entries, and the arguments of calls."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from generation.engine import PageCopy, PagePool
from lang_core import TensorSpec
from runtime import Held

POSITIONS: Final = 1
"""Axis of positions in a row's part of a cache [K, S, H], and in a page [K, S / M, H]."""

Part = tuple[slice | int, ...]


def position_axes(specs: Mapping[str, TensorSpec], held: int) -> tuple[int | None, ...]:
    """Returns the axis of positions in a row of each cache or state.

    Args:
        specs: specs of caches [B, K, S, H] and states, by name.
        held: number of positions of a row, or of a page.

    Returns:
        ``POSITIONS``; None of a state, and of a ring cache, which has fewer positions.
    """
    has = [name.endswith("_cache") and spec.shape[2] == held for name, spec in specs.items()]
    return tuple(POSITIONS if whole else None for whole in has)


class SlotRows(ABC):
    """Rows of caches and states on a device."""

    def __init__(self, caches: Held, axes: Sequence[int | None]) -> None:
        """Takes the caches and states, and the axis of positions of each row of them; None of a state or a ring."""
        self._caches: Final = caches
        self._axes: Final = axes

    @abstractmethod
    def place(self, row: int, start: int, count: int) -> Any:
        """Makes a row ready for entries from ``start`` on, and returns the argument of a call for it."""

    @abstractmethod
    def places(self, batch: Sequence[int], rows: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        """Prepares rows for an entry each, and returns the argument of a call for a batch in which other rows rest."""

    @abstractmethod
    def copy(self, source: int, target: int, count: int | None) -> None:
        """Makes the first ``count`` positions of a row those of another one, all if None."""

    @abstractmethod
    def clear(self, row: int) -> None:
        """Notes that a row's entries are not needed."""

    @abstractmethod
    def parts(self, axis: int | None, row: int, start: int, stop: int) -> Iterator[tuple[Part, slice]]:
        """Yields places in a cache or state, and which of a row's positions from ``start`` on lie there."""

    def read(self, row: int, start: int, stop: int) -> Sequence[np.ndarray]:
        """Returns copies of a row's entries of positions ``start`` to ``stop`` in every cache, and of whole states."""
        return [self._read(index, row, start, stop) for index in range(len(self._axes))]

    def write(self, row: int, start: int, arrays: Sequence[np.ndarray]) -> None:
        """Writes the arrays of ``read`` into a row, beginning at position ``start``."""
        for index, (axis, array) in enumerate(zip(self._axes, arrays, strict=True)):
            stop = start if axis is None else start + array.shape[axis]
            for part, place in self.parts(axis, row, start, stop):
                lies_whole = axis is None or place == slice(0, array.shape[axis])
                self._caches.write(index, part, array if lies_whole else np.ascontiguousarray(array[:, place]))

    def _read(self, index: int, row: int, start: int, stop: int) -> np.ndarray:
        parts = [self._caches.read(index, part) for part, _ in self.parts(self._axes[index], row, start, stop)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, POSITIONS)


class WholeRows(SlotRows):
    """Rows that have all their positions."""

    def __init__(self, caches: Held, axes: Sequence[int | None], copy: Callable[[int, int], object]) -> None:
        """Takes as ``copy`` the function that copies positions of a row to another row."""
        super().__init__(caches, axes)
        self._copy: Final = copy

    def place(self, row: int, start: int, count: int) -> int:
        """Returns the row."""
        del start, count
        return row

    def places(self, batch: Sequence[int], rows: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        """Returns the rows of the batch, i32 [n]."""
        del rows, positions
        return np.array(batch, np.int32)

    def copy(self, source: int, target: int, count: int | None) -> None:
        """Copies all positions."""
        del count
        self._copy(source, target)

    def clear(self, row: int) -> None:
        """Does nothing."""

    def parts(self, axis: int | None, row: int, start: int, stop: int) -> Iterator[tuple[Part, slice]]:
        """Yields the row's positions, which lie together."""
        yield ((row,) if axis is None else (row, slice(None), slice(start, stop))), slice(0, stop - start)


class PagedRows(SlotRows):
    """Rows with positions in the pages of a pool, of caches [P, K, S / M, H]."""

    def __init__(
        self, caches: Held, axes: Sequence[int | None], copy: Callable[[int, int], object], pool: PagePool
    ) -> None:
        """Takes as ``copy`` the function that copies a page to another page."""
        super().__init__(caches, axes)
        self._pages: Final = pool
        self._copy: Final = copy

    def place(self, row: int, start: int, count: int) -> np.ndarray:
        """Returns the row's table, i32 [1, M].

        Raises:
            PagesError: free pages are missing.
        """
        self._copy_all(self._pages.write(row, start, count))
        return self._pages.table(row)[None]

    def places(self, batch: Sequence[int], rows: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        """Returns the tables, i32 [n, M]; those of rows at rest name the page that is nobody's.

        Raises:
            PagesError: free pages are missing.
        """
        tables = {row: self.place(row, at, 1)[0] for row, at in zip(rows, positions, strict=True)}
        return np.stack([tables[row] if row in tables else self._pages.resting() for row in batch])

    def copy(self, source: int, target: int, count: int | None) -> None:
        """Shares whole pages, and copies the one in which the positions end."""
        held = len(self._pages.held(source)) * self._pages.page_tokens
        self._copy_all(self._pages.share(source, target, held if count is None else count))

    def clear(self, row: int) -> None:
        """Takes the row's pages."""
        self._pages.drop(row)

    def write(self, row: int, start: int, arrays: Sequence[np.ndarray]) -> None:
        """Writes entries into pages that the row gets for them.

        Raises:
            PagesError: free pages are missing.
        """
        self.place(row, start, arrays[0].shape[POSITIONS])
        super().write(row, start, arrays)

    def parts(self, axis: int | None, row: int, start: int, stop: int) -> Iterator[tuple[Part, slice]]:
        """Yields the parts of the row's pages; one without positions if there are none."""
        table, page, at = self._pages.table(row), self._pages.page_tokens, start
        while at < stop or at == start:
            first, count = at % page, min(page - at % page, stop - at)
            lies = (int(table[min(at // page, len(table) - 1)]), slice(None), slice(first, first + count))
            yield lies, slice(at - start, at - start + count)
            at += count or 1

    def _copy_all(self, copies: Sequence[PageCopy]) -> None:
        for source, target in copies:
            self._copy(source, target)


def slot_rows(
    caches: Held, axes: Sequence[int | None], copy: Callable[[Held, int, int], object], pool: PagePool | None
) -> SlotRows:
    """Returns the rows of caches and states.

    Args:
        caches: caches and states.
        axes: axis of positions of each row of them; None of a state or a ring.
        copy: makes a row, or a page, of all caches another one.
        pool: pages of the rows; None if they have all their positions.
    """
    copied = partial(copy, caches)
    return WholeRows(caches, axes, copied) if pool is None else PagedRows(caches, axes, copied, pool)
