"""Pages: none is leaked, none is used twice, and every promise is kept, whatever rows do."""

import os

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from generation.engine._pool import PagePool, PagesError

_LONG = bool(os.environ.get("TAPELINE_LONG"))
_ROWS, _PAGES, _TOKENS, _MOST = 4, 13, 4, 5
_CAPACITY = _TOKENS * _MOST


class PoolMachine(RuleBasedStateMachine):
    """Rows that begin, grow, share, end and are evicted; entries are numbers, in an array of pages.

    ``known`` has what each row must hold; ``limit`` how far a running row may grow.
    """

    rows = Bundle("rows")

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(_ROWS, _PAGES, _TOKENS, _MOST)
        self.entries = np.zeros((_PAGES, _TOKENS), np.int64)
        self.known: list[list[int]] = [[] for _ in range(_ROWS)]
        self.limit = [0] * _ROWS
        self.waiting: set[int] = set()  # admitted, and not begun
        self.written = 0

    def _free_rows(self) -> list[int]:
        return [row for row in range(_ROWS) if not self.limit[row]]

    def _running(self) -> list[int]:
        return [row for row in range(_ROWS) if self.limit[row] and row not in self.waiting]

    def _copy(self, copies: list) -> None:
        for source, target in copies:
            self.entries[target] = self.entries[source]

    def _write(self, row: int, start: int, count: int) -> None:
        self._copy(self.pool.write(row, start, count))
        table = self.pool.table(row)
        del self.known[row][start:]
        for position in range(start, start + count):
            self.written += 1
            page = table[position // _TOKENS]
            assert page != _PAGES - 1
            self.entries[page, position % _TOKENS] = self.written
            self.known[row].append(self.written)

    @precondition(lambda self: self._free_rows())
    @rule(data=st.data(), tokens=st.integers(1, _CAPACITY))
    def admit(self, data: st.DataObject, tokens: int) -> None:
        """A request is admitted, or waits until all idle rows were evicted."""
        row = data.draw(st.sampled_from(self._free_rows()))
        while not self.pool.reserve(row, tokens):
            idle = [other for other in self._free_rows() if self.pool.held(other) and other != row]
            if not idle:
                assert any(self.limit)  # alone, any request has its pages
                return
            self.pool.drop(idle[0])
            self.known[idle[0]] = []
        self.limit[row] = tokens
        self.waiting.add(row)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), keep=st.integers(0, _CAPACITY), own=st.booleans())
    def begin(self, data: st.DataObject, keep: int, own: bool) -> None:
        """A row goes on from a beginning of its own entries, or of another row's."""
        row = data.draw(st.sampled_from(sorted(self.waiting)))
        source = row if own else data.draw(st.integers(0, _ROWS - 1))
        keep = min(keep, len(self.known[source]), self.limit[row] - 1)
        if source != row and keep:
            self._copy(self.pool.share(source, row, keep))
            self.known[row] = self.known[source][:keep]
        self.waiting.discard(row)
        self._write(row, keep if keep <= len(self.known[row]) else 0, 1)

    @precondition(lambda self: self._running())
    @rule(data=st.data(), count=st.integers(1, 7), back=st.integers(0, 2))
    def grow(self, data: st.DataObject, count: int, back: int) -> None:
        """A running row takes more tokens; never is there no page for them."""
        row = data.draw(st.sampled_from(self._running()))
        start = len(self.known[row])
        count = min(count, self.limit[row] - start)
        if count > 0:
            self._write(row, start, count)

    @precondition(lambda self: any(self.limit))
    @rule(data=st.data(), lost=st.booleans())
    def end(self, data: st.DataObject, lost: bool) -> None:
        """An answer ends; its row keeps its entries, unless nobody knows what they are."""
        row = data.draw(st.sampled_from([row for row in range(_ROWS) if self.limit[row]]))
        self.pool.release(row)
        self.limit[row] = 0
        self.waiting.discard(row)
        if lost:
            self.pool.drop(row)
            self.known[row] = []

    @invariant()
    def rows_hold_what_was_written(self) -> None:
        for row, known in enumerate(self.known):
            entries = self.entries[self.pool.table(row)].reshape(-1)[: len(known)]
            assert entries.tolist() == known

    @invariant()
    def no_page_is_lost_or_used_twice(self) -> None:
        held = {page for row in range(_ROWS) for page in self.pool.held(row)}
        assert self.pool.used(range(_ROWS)) == len(held)
        assert len(held) + self.pool.free == self.pool.usable
        assert _PAGES - 1 not in held


def test_rows_that_begin_grow_share_and_end_keep_their_entries() -> None:
    steps = settings(max_examples=2000 if _LONG else 60, stateful_step_count=60, deadline=None)
    run_state_machine_as_test(PoolMachine, settings=steps)


def test_a_request_waits_where_pages_are_promised_to_others() -> None:
    pool = PagePool(3, 7, 4, 3)
    assert pool.reserve(0, 12)
    assert pool.reserve(1, 9)
    assert not pool.reserve(2, 1)
    pool.release(1)
    assert pool.reserve(2, 12)
    assert (pool.free, pool.usable) == (6, 6)


def test_a_page_that_others_were_promised_is_refused() -> None:
    pool = PagePool(2, 4, 4, 3)
    assert pool.reserve(0, 12)
    with pytest.raises(
        PagesError, match=r"row 1 needs a page, and of 3 3 are free, all promised to other rows: end some requests"
    ):
        pool.write(1, 0, 1)
    with pytest.raises(PagesError, match=r"row 0 has 0 pages, and is written at position 4: write those before"):
        pool.write(0, 4, 1)


def test_whole_pages_are_shared_and_the_last_one_is_copied() -> None:
    pool = PagePool(2, 9, 4, 4)
    pool.write(0, 0, 10)
    (copy,) = pool.share(0, 1, 6)
    assert pool.held(1)[0] == pool.held(0)[0]
    assert copy == (pool.held(0)[1], pool.held(1)[1])
    assert pool.used([0, 1]) == 4
    assert pool.share(0, 1, 8) == []
    assert pool.held(1) == pool.held(0)[:2]
    (copy,) = pool.write(1, 7, 1)  # back into a page that both have
    assert copy.source == pool.held(0)[1]
    assert pool.table(1).tolist()[2:] == [8, 8]
    assert pool.resting().tolist() == [8] * 4
