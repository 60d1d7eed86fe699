"""Offsets of a row's integers and minima, for matvecs with AVX2: they meet sums of x, which are made once for all rows.

A weight is ``scale * (integer - offset)`` or ``scale * integer - minimum``, so a block of a row has its offset, or its
minimum, times the sum of x's block. ``%minus`` has those sums, with a factor and a sign, for blocks or for sixteens.
"""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._avx2_row import BYTES, EIGHT, added, for_steps
from run_iree.kernels._instruction_sets import byte_dot, neighbours_added, pair_dot
from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import listed

_SIXTEEN: Final = BLOCK // 2
# Sixteens of a super-block by lane: of two pairs of blocks, half a super-block apart, the first ones, then the second
# ones; then those of two more pairs. A register of products has two blocks' first ones in its low half.
SIXTEENS: Final = (0, 8, 2, 10, 1, 9, 3, 11, 4, 12, 6, 14, 5, 13, 7, 15)


def integer_offset(encoding: Encoding) -> int:
    """Returns by how much unsigned integers, or numbers of a table made unsigned, exceed their values."""
    table = encoding.layout.table
    return encoding.layout.offset if table is None else -min(table)


def largest_integer(encoding: Encoding) -> int:
    """Returns the largest unsigned integer, or number of a table made unsigned."""
    table = encoding.layout.table
    return (1 << encoding.bits) - 1 if table is None else max(table) - min(table)


@dataclass(frozen=True, slots=True)
class Minus:
    """Sums of x that the rows' offsets or minima are multiplied with.

    Attributes:
        encoding: encoding of the rows.
        columns: columns of x.
        planes: planes of x.
        blocks: blocks of x in a step.
        most: columns that are summed at a time.
        exact: whether offsets stay integers, to be added to products before they are scaled; of blocks of 32.
    """

    encoding: Encoding
    columns: int
    planes: int
    blocks: int
    most: int
    exact: bool = False

    @property
    def _kind(self) -> str:
        return "i32" if self.exact and self.encoding.layout.minimum is None else "f32"

    @property
    def needed(self) -> bool:
        """True if the encoding has an offset or minima."""
        return self.encoding.layout.minimum is not None or integer_offset(self.encoding) > 0

    @property
    def exact_needed(self) -> bool:
        """True if integers are to be added to products."""
        return self.needed and self._kind == "i32"

    @property
    def width(self) -> int:
        """Columns of a sum: as many as share an offset or a minimum."""
        return self.encoding.layout.scaled

    @property
    def _memory(self) -> str:
        return self._sums.memref

    @property
    def _sums(self) -> Buffer:
        return Buffer("minus", self.most // self.width, self._kind)

    @property
    def _few(self) -> str:
        return f"vector<{self.blocks}x{self._kind}>"

    @property
    def stack_bytes(self) -> float:
        """Bytes of the stack for each column."""
        return 4 / self.width if self.needed else 0

    def numbers(self) -> list[int]:
        """Returns the index constants that the lines need."""
        return [self.blocks, BLOCK, 8, 16, self.columns]

    def kept(self) -> tuple[Buffer, ...]:
        """Returns the memory for the sums."""
        return (self._sums,) if self.needed else ()

    def made(self) -> list[str]:
        """Returns the lines that make the sums of the steps from ``%first_step`` to ``%end_step``."""
        if not self.needed:
            return []
        return for_steps(self.blocks * BLOCK, self._blocks() if self.width == BLOCK else self._sixteens())

    def _blocks(self) -> list[str]:
        few, floats, layout = self._few, f"vector<{self.blocks}xf32>", self.encoding.layout
        count = f"{self.columns // BLOCK}x"
        name, below = "%offsets", -integer_offset(self.encoding)
        lines = [
            f"%from_block = arith.muli %part, %c{self.blocks} : index",
            f"%local_block = arith.muli %local_part, %c{self.blocks} : index",
            f"%totals = vector.load %total[%from_block] : memref<{count}i32>, vector<{self.blocks}xi32>",
        ]
        if self._kind == "i32":
            lines += [
                f"%below = arith.constant dense<{below}> : {few}",
                f"%offsets = arith.muli %totals, %below : {few}",
            ]
        else:
            lines.append(f"%float_totals = arith.sitofp %totals : vector<{self.blocks}xi32> to {floats}")
            if layout.minimum is None:
                lines += [
                    f"%below = arith.constant dense<{float(below)}> : {floats}",
                    f"%offsets = arith.mulf %float_totals, %below : {floats}",
                ]
            else:
                lines += [
                    f"%part_scales = vector.load %scale[%from_block] : memref<{count}f32>, {floats}",
                    f"%part_sums = arith.mulf %float_totals, %part_scales : {floats}",
                    *([] if layout.adds_minimum else [f"%offsets = arith.negf %part_sums : {floats}"]),
                ]
                name = "%part_sums" if layout.adds_minimum else "%offsets"
        return [*lines, f"vector.store {name}, %minus[%local_block] : {self._memory}, {few}"]

    def _sixteens(self) -> list[str]:
        """Makes sums of sixteens in the order of ``SIXTEENS``.

        With minima they have x's scales; with an offset the scales of the rows have them.
        """
        with_scales = self.encoding.layout.minimum is not None
        factor = 1 if with_scales else integer_offset(self.encoding)
        lines = [
            f"%above = arith.constant dense<{factor}> : {BYTES}",
            "%local_sixteen = arith.muli %local_part, %c16 : index",
        ]
        for block in range(self.blocks):
            lines += self._fours(block)
        if with_scales:
            lines += [
                f"%from_block = arith.muli %part, %c{self.blocks} : index",
                f"%part_scales = vector.load %scale[%from_block] : memref<{self.columns // BLOCK}xf32>, {EIGHT}",
            ]
        for side in (0, 1):
            parts = SIXTEENS[8 * side : 8 * side + 8]
            a, b, c, d = (f"%fours{part // 2}" for part in parts[:4])
            last = f"%unscaled{side}" if with_scales else f"%offsets{side}"
            lines += [
                f"%eights{side}_0 = {neighbours_added(a, b)}",
                f"%eights{side}_1 = {neighbours_added(c, d)}",
                f"%sixteens{side} = {neighbours_added(f'%eights{side}_0', f'%eights{side}_1')}",
                f"%floats{side} = arith.sitofp %sixteens{side} : vector<8xi32> to {EIGHT}",
                f"{last} = arith.negf %floats{side} : {EIGHT}",
            ]
            if with_scales:
                lanes = listed([part // 2 for part in parts])
                lines += [
                    f"%scales{side} = vector.shuffle %part_scales, %part_scales {lanes} : {EIGHT}, {EIGHT}",
                    f"%offsets{side} = arith.mulf {last}, %scales{side} : {EIGHT}",
                ]
            lines += [
                f"%to{side} = arith.addi %local_sixteen, %c{8 * side} : index",
                f"vector.store %offsets{side}, %minus[%to{side}] : {self._memory}, {EIGHT}",
            ]
        return lines

    def _fours(self, block: int) -> list[str]:
        """Makes ``%fours<block>`` vector<8xi32>: sums of four of x, with the factor ``%above``."""
        lines = [f"%from{block} = arith.addi %from, %c{BLOCK * block} : index"]
        names = [f"%fours{block}"] if self.planes == 1 else [f"%fours{block}_{plane}" for plane in range(self.planes)]
        for plane, (name, factor) in enumerate(zip(names, ("%far", "%ones")[2 - self.planes :], strict=True)):
            given, pairs = f"%x_given{block}_{plane}", f"%x_pairs{block}_{plane}"
            lines += [
                f"{given}_at = arith.addi %from{block}, %c{plane * self.columns} : index",
                f"{given} = vector.load %q[{given}_at] : memref<{self.planes * self.columns}xi8>, {BYTES}",
                f"{pairs} = {byte_dot('%above', given)}",
                f"{name} = {pair_dot(pairs, factor)}",
            ]
        return [*lines, *added(f"%fours{block}", names, "vector<8xi32>")]

    def of_x(self) -> list[str]:
        """Returns the lines that load ``%x_minus`` of a step."""
        if not self.needed:
            return []
        kind = self._few if self.width == BLOCK else "vector<16xf32>"
        count = self.blocks if self.width == BLOCK else _SIXTEEN
        return [
            f"%minus_at = arith.muli %local_step, %c{count} : index",
            f"%x_minus = vector.load %minus[%minus_at] : {self._memory}, {kind}",
        ]

    def less(self) -> list[str]:
        """Makes ``%less`` vector<8xf32> of a step's ``%scales`` or ``%minima``; of sixteens, ``%sum_less``."""
        if not self.needed:
            return []
        factors = "%scales" if self.encoding.layout.minimum is None else "%minima"
        if self.width != BLOCK:
            return [f"%sum_less = math.fma {factors}, %x_minus, %sum : vector<16xf32>"]
        few, lanes = self._few, listed([min(lane, self.blocks) for lane in range(8)])
        return [
            f"%few_less = arith.mulf {factors}, %x_minus : {few}",
            f"%few_none = arith.constant dense<0.0> : {few}",
            f"%less = vector.shuffle %few_less, %few_none {lanes} : {few}, {few}",
        ]
