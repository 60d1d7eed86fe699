"""Sixteen rows of a packed weight, turned so that a lane of 32 bits is a row.

Sixteen bytes of four rows each are in a register, row 4 l + i in quarter l of register i, so that two rounds of
unpacking within quarters turn them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from run_iree.kernels._lines import Buffer, Lines, Operand, vector

ROWS: Final = 16
WORD: Final = 4  # bytes
QUARTER: Final = 16  # bytes
BYTES: Final = vector(64, "i8")
WORDS: Final = vector(ROWS, "i32")
FLOATS: Final = vector(ROWS, "f32")
_HALVES: Final = vector(2 * ROWS, "i16")
_QUARTER: Final = vector(QUARTER // WORD, "i32")


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


def row_places(row_bytes: int) -> Lines:
    """Makes ``%row_at<r>``, the start of the step in each row."""
    b = Lines()
    for r in range(ROWS):
        skip = b.constant(f"row_skip{r}", r * row_bytes, "index")
        b.same(f"row_at{r}", "arith.addi", Operand("%at", "index"), skip)
    return b


def turned_words(w: Buffer, place: int, first: int) -> Lines:
    """Makes ``%word<byte>``, from ``first`` on, of sixteen bytes from ``place`` of the step on."""
    b, quarters = Lines(), list[Operand]()
    for r in range(ROWS):
        name = f"{place}_{r}"
        offset = b.constant(f"place{name}", place, "index")
        at = b.same(f"bytes_at{name}", "arith.addi", Operand(f"%row_at{r}", "index"), offset)
        quarters.append(b.cast(f"quarter{name}", "vector.bitcast", b.load(f"bytes{name}", w, at, QUARTER), _QUARTER))
    joined = [_joined(b, f"joined{place}_{i}", quarters[i::4]) for i in range(4)]
    low, high = _quarters([0, 16, 1, 17]), _quarters([2, 18, 3, 19])
    rounds = [
        b.shuffle(f"round{place}_{i + j}", joined[i // 2 * 2], joined[i // 2 * 2 + 1], mask)
        for i in (0, 2)
        for j, mask in enumerate((low, high))
    ]
    low, high = _quarters([0, 1, 16, 17]), _quarters([2, 3, 18, 19])
    for i, (half, mask) in enumerate(((0, low), (0, high), (1, low), (1, high))):
        if place + WORD * i >= first:
            b.shuffle(f"word{place + WORD * i}", rounds[half], rounds[half + 2], mask)
    return b


def mixed_halves(name: str, first: int, last: int) -> Lines:
    """Makes ``%<name>`` of the upper halves of the word at byte ``first`` and the lower halves of that at ``last``."""
    b, mask = Lines(), [lane if lane % 2 else 2 * ROWS + lane for lane in range(2 * ROWS)]
    upper = b.cast(f"{name}_first", "vector.bitcast", _word(first), _HALVES)
    lower = b.cast(f"{name}_last", "vector.bitcast", _word(last), _HALVES)
    b.cast(name, "vector.bitcast", b.shuffle(f"{name}_halves", upper, lower, mask), WORDS)
    return b


def turned_f16(name: str, place: int) -> Lines:
    """Makes ``%<name>`` f32 of the f16 at a byte of the step."""
    b = Lines()
    halves = b.cast(f"{name}_halves", "vector.bitcast", _word(place - place % WORD), _HALVES)
    own = b.shuffle(f"{name}_own", halves, halves, range(place % WORD // 2, 2 * ROWS, 2))
    b.cast(name, "arith.extf", b.cast(f"{name}_f16", "vector.bitcast", own, vector(ROWS, "f16")), FLOATS)
    return b


def _word(byte: int) -> Operand:
    """Returns the word that ``turned_words`` makes of the bytes from ``byte`` of the step on."""
    return Operand(f"%word{byte}", WORDS)


def _joined(b: Lines, name: str, quarters: Sequence[Operand]) -> Operand:
    """Returns vector<16xi32> of four vector<4xi32>."""
    low, high = (b.shuffle(f"{name}_half{i}", quarters[2 * i], quarters[2 * i + 1], range(8)) for i in range(2))
    return b.shuffle(name, low, high, range(16))


def _quarters(mask: Sequence[int]) -> list[int]:
    """Returns the mask of a shuffle that does the same in each quarter."""
    return [4 * quarter + lane for quarter in range(4) for lane in mask]
