"""The pages of a pool, and which rows have them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from lang_core import TapelineError


class PagesError(TapelineError):
    """A row needs a page, and all free pages are reserved by other rows."""


class PageCopy(NamedTuple):
    """Page to copy before a row writes there.

    Attributes:
        source: page that is copied.
        target: page that becomes its copy.
    """

    source: int
    target: int


class PagePool:
    """P pages, the last of which is reserved: tables name it if a row lacks a page, and it is never written.

    A page of several rows is whole and behind none of them: each of them goes on in pages of its own. A row with a
    reservation gets as many pages as it reserved, because the pool reserves each page once.

    Attributes:
        rows: number of rows.
        pages: P.
        page_tokens: positions of a page.
        row_pages: M, the most pages of a row.
    """

    def __init__(self, rows: int, pages: int, page_tokens: int, row_pages: int) -> None:
        """Begins with rows without pages."""
        self.rows: Final = rows
        self.pages: Final = pages
        self.page_tokens: Final = page_tokens
        self.row_pages: Final = row_pages
        self._free: Final = list(range(pages - 2, -1, -1))
        self._held: Final[list[list[int]]] = [[] for _ in range(rows)]
        self._users: Final = Counter[int]()
        self._promised: Final = [0] * rows  # pages in all, of rows with a reservation
        self._begun: Final = [False] * rows

    @property
    def usable(self) -> int:
        """Number of pages that rows can have."""
        return self.pages - 1

    @property
    def free(self) -> int:
        """Number of pages without an owner."""
        return len(self._free)

    def held(self, row: int) -> Sequence[int]:
        """Returns the pages of a row, in order."""
        return tuple(self._held[row])

    def used(self, rows: Iterable[int]) -> int:
        """Returns how many pages some rows have, each counted once."""
        return len({page for row in rows for page in self._held[row]})

    def table(self, row: int) -> np.ndarray:
        """Returns the pages of a row, i32 [M]; the last page of the pool stands for none."""
        table = np.full(self.row_pages, self.pages - 1, np.int32)
        table[: len(self._held[row])] = self._held[row]
        return table

    def resting(self) -> np.ndarray:
        """Returns the table of a row that is not part of a call, i32 [M]."""
        return np.full(self.row_pages, self.pages - 1, np.int32)

    def reserve(self, row: int, tokens: int) -> bool:
        """Promises a row pages for so many positions, and returns False, promising nothing, if there are too few.

        The row's present entries count as long as they are its own; its next write decides which of them stay.
        """
        wanted = self._pages_for(tokens)
        self.release(row)
        if self._unpromised() + self._own(row) < wanted:
            return False
        self._promised[row], self._begun[row] = wanted, False
        return True

    def release(self, row: int) -> None:
        """Cancels a row's reservation; the row keeps its pages."""
        self._promised[row], self._begun[row] = 0, False

    def drop(self, row: int) -> None:
        """Takes the pages of a row."""
        self._cut(row, 0)

    def share(self, source: int, target: int, tokens: int) -> list[PageCopy]:
        """Gives a row the first positions of another: its whole pages, and a copy of the page that they end in.

        Raises:
            PagesError: free pages are missing for the copy.
        """
        whole, rest = divmod(tokens, self.page_tokens)
        kept = self._held[source][: whole + bool(rest)]
        for page in kept:  # first: nothing of them may become free
            self._users[page] += 1
        self._cut(target, 0)
        self._held[target] = kept
        self._begun[target] = True
        return [self._replaced(target, whole)] if rest else []

    def write(self, row: int, start: int, count: int) -> list[PageCopy]:
        """Makes ready for entries of positions from ``start`` on, behind which the row then has nothing.

        Raises:
            PagesError: free pages are missing.
        """
        whole, rest = divmod(start, self.page_tokens)
        held = self._held[row]
        self._cut(row, whole + bool(rest))
        if len(held) < whole + bool(rest):
            raise PagesError(f"row {row} has {len(held)} pages, and is written at position {start}: write those before")
        copies = []
        if rest and self._users[held[whole]] > 1:
            copies.append(self._replaced(row, whole))
        self._begun[row] = True
        while len(held) * self.page_tokens < start + count:
            held.append(self._taken(row))
        return copies

    def _pages_for(self, tokens: int) -> int:
        return min(-(-tokens // self.page_tokens), self.row_pages)

    def _own(self, row: int) -> int:
        """Returns the number of pages that only this row has."""
        return sum(self._users[page] == 1 for page in self._held[row])

    def _owed(self, row: int) -> int:
        """Returns how many pages a row may still ask for.

        Before its first write, it may have to give up shared pages.
        """
        had = len(self._held[row]) if self._begun[row] else self._own(row)
        return max(0, self._promised[row] - had)

    def _unpromised(self) -> int:
        return len(self._free) - sum(map(self._owed, range(self.rows)))

    def _taken(self, row: int) -> int:
        promised = self._owed(row) > 0
        if not self._free or (not promised and self._unpromised() < 1):
            raise PagesError(
                f"row {row} needs a page, and of {self.usable} {len(self._free)} are free, all promised to other rows: "
                f"end some requests, or export with more pages"
            )
        page = self._free.pop()
        self._users[page] = 1
        return page

    def _replaced(self, row: int, index: int) -> PageCopy:
        """Gives a row a page of its own in the place of one that it shares."""
        shared = self._held[row].pop(index)
        own = self._taken(row)
        self._held[row].insert(index, own)
        self._users[shared] -= 1
        return PageCopy(shared, own)

    def _cut(self, row: int, count: int) -> None:
        """Takes all but the first pages of a row."""
        held = self._held[row]
        for page in held[count:]:
            self._users[page] -= 1
            if not self._users[page]:
                self._free.append(page)
        del held[count:]
