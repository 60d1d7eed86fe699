"""Model whose rows are pages: a page that two rows write, or that is lost, is another token."""

from typing import Any, Final

import numpy as np

from generation.engine._hash_slots_testing import HashSlots
from generation.engine._pool import PageCopy, PagePool


class PagedHashSlots(HashSlots):
    """``HashSlots`` with its entries in pages.

    Attributes:
        pool: its pages.
    """

    def __init__(self, pages: int, page_tokens: int = 8, **given: Any) -> None:
        """Makes rows without pages."""
        super().__init__(**given)
        self.pool: Final = _CountingPool(self.slots, pages, page_tokens, self.capacity // page_tokens)
        self.pages = self.pool
        self._entries: Any = _PagedEntries(self.pool)

    def copy_row(self, source: int, target: int, count: int | None = None) -> None:
        """See ``ModelRunner``."""
        self._note("copy_row")
        assert source != target
        assert count is not None
        self._entries.copy(self.pool.share(source, target, count))


class _CountingPool(PagePool):
    """Pool that counts how often there were too few pages."""

    refused = 0

    def reserve(self, row: int, tokens: int) -> bool:
        """See ``PagePool``."""
        reserved = super().reserve(row, tokens)
        self.refused += not reserved
        return reserved


class _PagedEntries:
    """Entries u64 by row and positions; whoever writes gets the pages for them."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._pages = np.arange(1, pool.pages * pool.page_tokens + 1, dtype=np.uint64).reshape(pool.pages, -1)

    def __getitem__(self, place: tuple[int, slice]) -> np.ndarray:
        row, positions = place
        held = self._pages[list(self._pool.held(row))].reshape(-1)
        assert len(held) >= positions.stop
        return held[positions]

    def __setitem__(self, place: tuple[int, slice], entries: np.ndarray) -> None:
        row, positions = place
        self.copy(self._pool.write(row, positions.start, positions.stop - positions.start))
        table, size = self._pool.table(row), self._pool.page_tokens
        for position, entry in zip(range(positions.start, positions.stop), entries, strict=True):
            page = int(table[position // size])
            assert page != self._pool.pages - 1
            self._pages[page, position % size] = entry

    def copy(self, copies: list[PageCopy]) -> None:
        """Copies pages."""
        for source, target in copies:
            self._pages[target] = self._pages[source]
