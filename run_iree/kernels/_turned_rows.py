"""Blocks of 32 of sixteen rows of a packed weight, turned so that a lane of 32 bits is a row.

A step is two blocks, a whole number of words of 32 bits, which are read together with the scales between them: sixteen
bytes of four rows each are in a register, row 4 l + i in quarter l of register i, so that two rounds of unpacking
within quarters turn them. Where integers begin in the middle of a word, the first two bytes and the last two are one:
so a block's bytes are turned by two, and x with them (``x_bytes``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._packed_row import unsigned_offset
from run_iree.kernels._text import Buffer, listed

ROWS: Final = 16
STEP: Final = 2  # blocks
_WORD: Final = 4  # bytes
_QUARTER: Final = 16  # bytes
_BYTES: Final = "vector<64xi8>"
_HALVES: Final = "vector<32xi16>"
_WORDS: Final = "vector<16xi32>"
_FLOATS: Final = f"vector<{ROWS}xf32>"


def fits_turned_rows(columns: int, encoding: Encoding) -> bool:
    """Returns whether rows are whole steps of blocks with one plane of 8 or 4 bits, scaled by f16."""
    layout = encoding.layout
    one_plane = len(layout.planes) == 1 and layout.table is None and not layout.exponent
    return encoding.block == BLOCK and one_plane and columns % (STEP * BLOCK) == 0


@dataclass(frozen=True, slots=True)
class TurnedRows:
    """Sixteen rows of a packed weight.

    Attributes:
        encoding: encoding of the weight.
        w: buffer of the weight.
        row_bytes: bytes of a row.
    """

    encoding: Encoding
    w: Buffer
    row_bytes: int

    @property
    def step_bytes(self) -> int:
        """Bytes of a row in a step."""
        return STEP * self.encoding.block_bytes

    @property
    def has_minima(self) -> bool:
        """True if ``%minima<block>`` are to be added, times x's sums."""
        return self.encoding.layout.minimum is not None

    @property
    def offset(self) -> int:
        """Excess of the integers over their values."""
        return 0 if self.has_minima else unsigned_offset(self.encoding)

    @property
    def numbers(self) -> Sequence[int]:
        """Index constants that the lines need."""
        return [self.row_bytes, ROWS * self.row_bytes, self.step_bytes, ROWS * self.step_bytes]

    @property
    def before(self) -> list[str]:
        """Lines ahead of all loops."""
        if self.encoding.bits == 8:
            return [f"%flip = arith.constant dense<-128> : {_BYTES}"]
        return [f"%nibble = arith.constant dense<15> : {_BYTES}", f"%four = arith.constant dense<4> : {_BYTES}"]

    @property
    def _plane_bytes(self) -> int:
        return BLOCK * self.encoding.layout.planes[0].bits // 8

    def x_bytes(self, block: int) -> list[int]:
        """Returns the columns, in a block of a step, that bytes of ``%w<block>_<i>`` belong to, i by i."""
        count = self._plane_bytes
        turn = self._begin(block) % _WORD
        return [run + (byte - turn) % count for run in range(0, BLOCK, count) for byte in range(count)]

    def _begin(self, block: int) -> int:
        """Returns the first byte of a block's integers in the step."""
        return self.encoding.block_bytes * block + self.encoding.layout.planes[0].at

    def of_step(self) -> list[str]:
        """Makes ``%word<byte>`` of all words of the step that begins at ``%at`` of the first row."""
        size = self.step_bytes
        lines = list[str]()
        for r in range(ROWS):
            lines += [
                f"%row_skip{r} = arith.constant {r * self.row_bytes} : index",
                f"%row_at{r} = arith.addi %at, %row_skip{r} : index",
            ]
        for place in range(0, size, _QUARTER):
            # The last words lie in sixteen bytes that others were read with.
            lines += self._turned(min(place, size - _QUARTER), place)
        return lines

    def _turned(self, place: int, first: int) -> list[str]:
        """Makes ``%word<byte>``, from ``first`` on, of sixteen bytes from ``place`` of the step on."""
        lines = list[str]()
        for r in range(ROWS):
            name = f"{place}_{r}"
            lines += [
                f"%place{name} = arith.constant {place} : index",
                f"%bytes_at{name} = arith.addi %row_at{r}, %place{name} : index",
                f"%bytes{name} = vector.load %w[%bytes_at{name}] : {self.w.memref}, vector<{_QUARTER}xi8>",
                f"%quarter{name} = vector.bitcast %bytes{name} : vector<{_QUARTER}xi8> to vector<4xi32>",
            ]
        for i in range(4):
            lines += _joined(f"joined{place}_{i}", [f"%quarter{place}_{r}" for r in range(i, ROWS, 4)])
        low, high = _quarters([0, 16, 1, 17]), _quarters([2, 18, 3, 19])
        for i, pair in ((0, (0, 1)), (2, (2, 3))):
            for name, mask in ((i, low), (i + 1, high)):
                sources = ", ".join(f"%joined{place}_{j}" for j in pair)
                lines.append(f"%round{place}_{name} = vector.shuffle {sources} {listed(mask)} : {_WORDS}, {_WORDS}")
        low, high = _quarters([0, 1, 16, 17]), _quarters([2, 3, 18, 19])
        for i, (sources, mask) in enumerate((((0, 2), low), ((0, 2), high), ((1, 3), low), ((1, 3), high))):
            names = ", ".join(f"%round{place}_{j}" for j in sources)
            if place + _WORD * i >= first:
                lines.append(f"%word{place + _WORD * i} = vector.shuffle {names} {listed(mask)} : {_WORDS}, {_WORDS}")
        return lines

    def of_block(self, block: int) -> list[str]:
        """Makes ``%w<block>_<i>``, ``%scales<block>`` and ``%minima<block>`` of a block of the step."""
        layout, begin = self.encoding.layout, self.encoding.block_bytes * block
        lines = self._integers(block) + _f16(f"scales{block}", begin + layout.scale)
        return lines + ([] if layout.minimum is None else _f16(f"minima{block}", begin + layout.minimum))

    def _integers(self, block: int) -> list[str]:
        """Makes ``%w<block>_<i>`` of the words of a block."""
        lines, begin, count = list[str](), self._begin(block), self._plane_bytes // _WORD
        for i in range(count):
            n, place = f"{block}_{i}", begin - begin % _WORD + _WORD * i
            lines += _mixed(n, place, place + self._plane_bytes) if begin % _WORD and i == 0 else []
            source = f"%mixed{n}" if begin % _WORD and i == 0 else f"%word{place}"
            lines.append(f"%stored{n} = vector.bitcast {source} : {_WORDS} to {_BYTES}")
            if self.encoding.bits == 8:
                lines.append(f"%w{n} = arith.xori %stored{n}, %flip : {_BYTES}")
            else:
                lines += [
                    f"%w{n} = arith.andi %stored{n}, %nibble : {_BYTES}",
                    f"%w{block}_{i + count} = arith.shrui %stored{n}, %four : {_BYTES}",
                ]
        return lines


def _mixed(n: str, first: int, last: int) -> list[str]:
    """Makes ``%mixed<n>`` of the upper halves of a word and the lower halves of another."""
    mask = [lane if lane % 2 else ROWS * 2 + lane for lane in range(2 * ROWS)]
    return [
        f"%first{n} = vector.bitcast %word{first} : {_WORDS} to {_HALVES}",
        f"%last{n} = vector.bitcast %word{last} : {_WORDS} to {_HALVES}",
        f"%mixed_halves{n} = vector.shuffle %first{n}, %last{n} {listed(mask)} : {_HALVES}, {_HALVES}",
        f"%mixed{n} = vector.bitcast %mixed_halves{n} : {_HALVES} to {_WORDS}",
    ]


def _f16(name: str, place: int) -> list[str]:
    """Makes ``%<name>`` f32 of the f16 at a byte of the step."""
    odd = place % _WORD // 2
    return [
        f"%{name}_halves = vector.bitcast %word{place - place % _WORD} : {_WORDS} to {_HALVES}",
        f"%{name}_own = vector.shuffle %{name}_halves, %{name}_halves {listed(range(odd, 2 * ROWS, 2))} : "
        f"{_HALVES}, {_HALVES}",
        f"%{name}_f16 = vector.bitcast %{name}_own : vector<{ROWS}xi16> to vector<{ROWS}xf16>",
        f"%{name} = arith.extf %{name}_f16 : vector<{ROWS}xf16> to {_FLOATS}",
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
