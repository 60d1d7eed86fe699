"""Sizes of attention over a cache, derived sizes, and the head of the caches that a workgroup reads."""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._attention_keys import KEYS, MOST_TOGETHER, panel_bytes
from run_iree.kernels._text import largest_divisor

_LANES: Final = 16
_MOST_QUERIES: Final = 256  # of a workgroup, all heads of its group together
_SCRATCH_BYTES: Final = 16 << 10  # of a workgroup's stack, for the sums of its queries
_PANEL_ROWS: Final = 8  # that are worth panels of keys and values
_STACK_BYTES: Final = 30 << 10


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Sizes of attention: B, K, G, T, H, S, H', rows of the bias, and rows of caches if sequences choose theirs.

    Attributes:
        pages: rows of the caches that each sequence has, one after the other: pages of S / M positions.
        most_together: rows that may be computed side by side.
        encoding: encoding of the caches' entries; None if they are numbers.
    """

    batch: int
    shared: int
    group: int
    queries: int
    size: int
    keys: int
    value_size: int
    rows: int
    cached: int = 0
    pages: int = 1
    most_together: int = MOST_TOGETHER
    encoding: Encoding | None = None

    def fit(self) -> bool:
        """Returns whether there is a kernel."""
        whole = self.pages == 1 or self.page % KEYS == 0  # a block of keys is in one page
        return whole and self.size % _LANES == 0 and self.value_size % _LANES == 0 and self.keys >= KEYS

    def fit_blocks(self) -> bool:
        """Returns whether there is a kernel that quantizes its result: of one query, with whole blocks."""
        return self.fit() and self.scratch and self.queries == 1 and self.value_size % BLOCK == 0

    @property
    def key_row(self) -> int:
        """Elements of a key in its buffer: H, or bytes."""
        return self._row(self.size)

    @property
    def value_row(self) -> int:
        """Elements of a value in its buffer: H', or bytes."""
        return self._row(self.value_size)

    def _row(self, columns: int) -> int:
        encoding = self.encoding
        return columns if encoding is None else columns // encoding.block * encoding.block_bytes

    @property
    def page(self) -> int:
        """Positions of a row of the caches."""
        return self.keys // self.pages

    @property
    def heads(self) -> int:
        """Product of B and K."""
        return self.batch * self.shared

    @property
    def tile(self) -> int:
        """Queries that a workgroup has of each head: a divisor of T."""
        return largest_divisor(self.queries, max(1, _MOST_QUERIES // self.group))

    @property
    def own(self) -> int:
        """Rows of y that a workgroup makes."""
        return self.group * self.tile

    @property
    def together(self) -> int:
        """Rows of a workgroup that are computed side by side."""
        return largest_divisor(self.own, self.most_together)

    @property
    def scratch(self) -> bool:
        """True if sums fit the stack; otherwise they are kept in y, which is f32 then."""
        return self.own * self.value_size * 4 <= _SCRATCH_BYTES

    @property
    def panels(self) -> bool:
        """True if the rows of a workgroup share panels of keys and values."""
        sums = self.own * self.value_size * 4 if self.scratch else 0
        return self.own >= _PANEL_ROWS and panel_bytes(self.size, self.value_size) + sums <= _STACK_BYTES

    @property
    def sums(self) -> int:
        """Elements of ``%y``, which holds the sums: those of a workgroup, or all."""
        rows = self.own if self.scratch else self.heads * self.group * self.queries
        return rows * self.value_size


def workgroup_places(sizes: AttentionSizes) -> list[str]:
    """Makes ``%k_at`` and ``%v_at``, the start of the workgroup's keys and values, unless they are in several pages."""
    return [] if sizes.pages > 1 else [*_stored_head(sizes), *_begins(sizes)]


def block_places(sizes: AttentionSizes, first: str, mark: str = "") -> list[str]:
    """Makes ``%k_block`` and ``%v_block``, the place of the keys and values from ``first`` on.

    Names end with ``mark``.
    """
    lines, within, page = [], first, ""
    if sizes.pages > 1:
        lines = [
            f"%page{mark} = arith.divui {first}, %c{sizes.page} : index",
            f"%in_page{mark} = arith.remui {first}, %c{sizes.page} : index",
            *_stored_head(sizes, mark),
            *_begins(sizes, mark),
        ]
        within, page = f"%in_page{mark}", mark
    return [
        *lines,
        f"%k_skip{mark} = arith.muli {within}, %c{sizes.key_row} : index",
        f"%k_block{mark} = arith.addi %k_at{page}, %k_skip{mark} : index",
        f"%v_skip{mark} = arith.muli {within}, %c{sizes.value_row} : index",
        f"%v_block{mark} = arith.addi %v_at{page}, %v_skip{mark} : index",
    ]


def _begins(sizes: AttentionSizes, mark: str = "") -> list[str]:
    """Makes ``%k_at`` and ``%v_at``, the start of the keys and values of ``%stored_head``."""
    return [
        f"%k_at{mark} = arith.muli %stored_head{mark}, %c{sizes.page * sizes.key_row} : index",
        f"%v_at{mark} = arith.muli %stored_head{mark}, %c{sizes.page * sizes.value_row} : index",
    ]


def _stored_head(sizes: AttentionSizes, mark: str = "") -> list[str]:
    """Makes ``%stored_head``, the head of the caches that is read: the workgroup's, or of ``%page`` of its pages."""
    if not sizes.cached:
        return [f"%stored_head{mark} = arith.addi %head, %c0 : index"]
    at, entry = list[str](), "%sequence"
    if sizes.pages > 1:
        at, entry = (
            [
                f"%table_line{mark} = arith.muli %sequence, %c{sizes.pages} : index",
                f"%table_at{mark} = arith.addi %table_line{mark}, %page{mark} : index",
            ],
            f"%table_at{mark}",
        )
    return [
        *at,
        f"%stored_given{mark} = memref.load %rows[{entry}] : memref<{sizes.batch * sizes.pages}xi32>",
        f"%stored_least{mark} = arith.constant 0 : i32",
        f"%stored_most{mark} = arith.constant {sizes.cached - 1} : i32",
        f"%stored_above{mark} = arith.maxsi %stored_given{mark}, %stored_least{mark} : i32",
        f"%stored_within{mark} = arith.minsi %stored_above{mark}, %stored_most{mark} : i32",
        f"%stored_row{mark} = arith.index_cast %stored_within{mark} : i32 to index",
        f"%stored_first{mark} = arith.muli %stored_row{mark}, %c{sizes.shared} : index",
        f"%stored_own{mark} = arith.remui %head, %c{sizes.shared} : index",
        f"%stored_head{mark} = arith.addi %stored_first{mark}, %stored_own{mark} : index",
    ]
