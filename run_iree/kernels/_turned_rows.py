"""Sixteen rows of a packed weight, turned so that a lane of 32 bits is a row.

Sixteen bytes of four rows each are in a register, row 4 l + i in quarter l of register i, so that two rounds of
unpacking within quarters turn them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import listed

ROWS: Final = 16
WORD: Final = 4  # bytes
QUARTER: Final = 16  # bytes
BYTES: Final = "vector<64xi8>"
WORDS: Final = f"vector<{ROWS}xi32>"
FLOATS: Final = f"vector<{ROWS}xf32>"
_HALVES: Final = f"vector<{2 * ROWS}xi16>"


@dataclass(frozen=True, slots=True)
class TurnedRows:
    """Lines that turn a step along sixteen rows.

    Attributes:
        w: buffer of the weight.
        row_bytes: bytes of a row.
        step_bytes: bytes of a row in a step.
        orders: for each block of 32 of a step, the columns that bytes of ``%w<block>_<i>`` belong to, i by i.
        offset: excess of the integers over their values.
        has_minima: whether ``%minima<block>`` are to be added, times x's sums.
        before: lines ahead of all loops.
        of_step: lines ahead of the blocks; the first row of the step begins at ``%at``.
        of_blocks: for each block, lines that make ``%w<block>_<i>``, four unsigned bytes of each row, i from 0 to 7,
            ``%scales<block>`` and ``%minima<block>`` vector<16xf32>.
    """

    w: Buffer
    row_bytes: int
    step_bytes: int
    orders: Sequence[Sequence[int]]
    offset: int
    has_minima: bool
    before: Sequence[str]
    of_step: Sequence[str]
    of_blocks: Sequence[Sequence[str]]

    @property
    def blocks(self) -> int:
        """Blocks of 32 of a step."""
        return len(self.orders)

    @property
    def numbers(self) -> Sequence[int]:
        """Index constants that the lines need."""
        return [self.row_bytes, ROWS * self.row_bytes, self.step_bytes, ROWS * self.step_bytes]


def row_places(row_bytes: int) -> list[str]:
    """Makes ``%row_at<r>``, the start of the step in each row."""
    lines = list[str]()
    for r in range(ROWS):
        lines += [
            f"%row_skip{r} = arith.constant {r * row_bytes} : index",
            f"%row_at{r} = arith.addi %at, %row_skip{r} : index",
        ]
    return lines


def turned_words(w: Buffer, place: int, first: int) -> list[str]:
    """Makes ``%word<byte>``, from ``first`` on, of sixteen bytes from ``place`` of the step on."""
    lines = list[str]()
    for r in range(ROWS):
        name = f"{place}_{r}"
        lines += [
            f"%place{name} = arith.constant {place} : index",
            f"%bytes_at{name} = arith.addi %row_at{r}, %place{name} : index",
            f"%bytes{name} = vector.load %w[%bytes_at{name}] : {w.memref}, vector<{QUARTER}xi8>",
            f"%quarter{name} = vector.bitcast %bytes{name} : vector<{QUARTER}xi8> to vector<4xi32>",
        ]
    for i in range(4):
        lines += _joined(f"joined{place}_{i}", [f"%quarter{place}_{r}" for r in range(i, ROWS, 4)])
    low, high = _quarters([0, 16, 1, 17]), _quarters([2, 18, 3, 19])
    for i, pair in ((0, (0, 1)), (2, (2, 3))):
        for name, mask in ((i, low), (i + 1, high)):
            sources = ", ".join(f"%joined{place}_{j}" for j in pair)
            lines.append(f"%round{place}_{name} = vector.shuffle {sources} {listed(mask)} : {WORDS}, {WORDS}")
    low, high = _quarters([0, 1, 16, 17]), _quarters([2, 3, 18, 19])
    for i, (sources, mask) in enumerate((((0, 2), low), ((0, 2), high), ((1, 3), low), ((1, 3), high))):
        names = ", ".join(f"%round{place}_{j}" for j in sources)
        if place + WORD * i >= first:
            lines.append(f"%word{place + WORD * i} = vector.shuffle {names} {listed(mask)} : {WORDS}, {WORDS}")
    return lines


def mixed_halves(name: str, first: int, last: int) -> list[str]:
    """Makes ``%<name>`` of the upper halves of the word at byte ``first`` and the lower halves of that at ``last``."""
    mask = [lane if lane % 2 else 2 * ROWS + lane for lane in range(2 * ROWS)]
    return [
        f"%{name}_first = vector.bitcast %word{first} : {WORDS} to {_HALVES}",
        f"%{name}_last = vector.bitcast %word{last} : {WORDS} to {_HALVES}",
        f"%{name}_halves = vector.shuffle %{name}_first, %{name}_last {listed(mask)} : {_HALVES}, {_HALVES}",
        f"%{name} = vector.bitcast %{name}_halves : {_HALVES} to {WORDS}",
    ]


def turned_f16(name: str, place: int) -> list[str]:
    """Makes ``%<name>`` f32 of the f16 at a byte of the step."""
    own = listed(range(place % WORD // 2, 2 * ROWS, 2))
    return [
        f"%{name}_halves = vector.bitcast %word{place - place % WORD} : {WORDS} to {_HALVES}",
        f"%{name}_own = vector.shuffle %{name}_halves, %{name}_halves {own} : {_HALVES}, {_HALVES}",
        f"%{name}_f16 = vector.bitcast %{name}_own : vector<{ROWS}xi16> to vector<{ROWS}xf16>",
        f"%{name} = arith.extf %{name}_f16 : vector<{ROWS}xf16> to {FLOATS}",
    ]


def _joined(name: str, quarters: Sequence[str]) -> list[str]:
    """Makes ``%<name>`` vector<16xi32> of four vector<4xi32>."""
    lines = list[str]()
    for i in range(2):
        pair, kind = ", ".join(quarters[2 * i : 2 * i + 2]), "vector<4xi32>"
        lines.append(f"%{name}_half{i} = vector.shuffle {pair} {listed(range(8))} : {kind}, {kind}")
    kind = "vector<8xi32>"
    return [*lines, f"%{name} = vector.shuffle %{name}_half0, %{name}_half1 {listed(range(16))} : {kind}, {kind}"]


def _quarters(mask: Sequence[int]) -> list[int]:
    """Returns the mask of a shuffle that does the same in each quarter."""
    return [4 * quarter + lane for quarter in range(4) for lane in mask]
