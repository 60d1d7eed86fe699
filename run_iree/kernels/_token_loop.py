"""Loops over a group of rows of W for a tile of tokens, with the sums kept beside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from run_iree.kernels._lines import LINE, Buffer, element_bytes
from run_iree.kernels._text import listed, prefetches, results, scratch, stored, total, within
from run_iree.kernels._token_lines import bases, for_tokens, of_token
from run_iree.kernels._token_x import TokenX

_SUMS_BYTES: Final = 16 << 10  # of a workgroup's stack
_MOST_ROWS: Final = 32  # of a group


@dataclass(frozen=True, slots=True)
class TokenLoop:
    """Loops of a workgroup over a group of rows, for a tile of tokens.

    Attributes:
        x: x of all tokens.
        w: weight.
        y: result.
        tile: tokens of a tile.
        ahead: prefetch distance in bytes.
        parts_apart: see ``packed_tokens``.
    """

    x: TokenX
    w: Buffer
    y: Buffer
    tile: int
    ahead: int
    parts_apart: bool

    @property
    def group(self) -> int:
        """Rows of a group."""
        return min(_MOST_ROWS, max(1, _SUMS_BYTES // (4 * self.tile * self.x.steps.lanes)))

    @property
    def sums(self) -> str:
        """Type of a token's sums of a row."""
        return f"vector<{self.x.steps.lanes}xf32>"

    @property
    def ranges(self) -> int:
        """Ranges of a row; their sums are added up in f32."""
        return -(-self.x.count // self.x.width)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of w."""
        return self.w.elements // self._outputs

    @property
    def _outputs(self) -> int:
        return self.y.elements // self.x.rows

    @property
    def _lanes(self) -> int:
        """Lanes of the sums of a row."""
        return self.tile * self.x.steps.lanes

    @property
    def numbers(self) -> list[int]:
        """Index constants that the lines need."""
        x, steps = self.x, self.x.steps
        return [
            *(*x.numbers, self.ranges, steps.lanes, self._lanes, self.group * self._lanes, self.group * self.tile),
            *(steps.width, steps.row_bytes, self.row_bytes, self.row_bytes - steps.row_bytes),
            *self._lines,
        ]

    @property
    def _lines(self) -> range:
        """Elements of a step at which cache lines begin."""
        return range(0, self.x.steps.row_bytes, LINE // element_bytes(self.w.kind))

    @property
    def _kept(self) -> str:
        return f"memref<{self.group * self._lanes}xf32>"

    @property
    def _totals(self) -> str:
        return f"memref<{self.group * self.tile}xf32>"

    def room(self) -> list[str]:
        """Makes the memory for sums."""
        return [scratch("kept", self._kept), *([scratch("totals", self._totals)] if self.ranges > 1 else [])]

    def of_tile(self) -> list[str]:
        """Multiplies the group's rows by the tile with the first token ``%token``."""
        if self.ranges == 1:
            lines = ["%range_number = arith.addi %c0, %c0 : index", *self._of_range()]
            return [*lines, *self._for_sums([*self._reduced("y_row"), *self._put("y_row")])]
        added = [
            *self._reduced("y_part"),
            f"%y_before = memref.load %totals[%sum_place] : {self._totals}",
            "%y_now = arith.addf %y_before, %y_part : f32",
            f"memref.store %y_now, %totals[%sum_place] : {self._totals}",
        ]
        return [
            f"scf.for %place = %c0 to %c{self.group * self.tile} step %c1 {{",
            f"  memref.store %zero, %totals[%place] : {self._totals}",
            "}",
            f"scf.for %range_number = %c0 to %c{self.ranges} step %c1 {{",
            *within([*self._of_range(), *self._for_sums(added)]),
            "}",
            *self._for_sums([f"%y_row = memref.load %totals[%sum_place] : {self._totals}", *self._put("y_row")]),
        ]

    def _of_range(self) -> list[str]:
        """Makes the sums of a range of the rows."""
        x = self.x
        return [
            f"scf.for %place = %c0 to %c{self.group * self._lanes} step %c{x.steps.lanes} {{",
            f"  vector.store %none, %kept[%place] : {self._kept}, {self.sums}",
            "}",
            f"scf.for %in_range = %c0 to %c{x.parts} step %c1 {{",
            f"  %parts_before = arith.muli %range_number, %c{x.parts} : index",
            "  %x_part = arith.addi %parts_before, %in_range : index",
            *within([*x.step_range(), *x.based(), *bases(x.views().values(), self.tile)]),
            "  scf.for %row = %band to %band_end step %c1 {",
            *within(self._of_row(), 4),
            "  }",
            "}",
        ]

    @property
    def _loops(self) -> Sequence[Sequence[str]]:
        """Lines of the loops along a part of a row; see ``parts_apart`` of ``packed_tokens``."""
        return self.x.steps.one_by_one if self.parts_apart else [self.x.steps.of_row]

    def _of_row(self) -> list[str]:
        """Adds a part of ``%row`` to its sums."""
        lines = [*self._places(), f"%begin = arith.muli %row, %c{self.row_bytes} : index", *self._ahead()]
        for number in range(len(self._loops)):
            lines += self._along_row(number)
        return lines

    def _along_row(self, number: int) -> list[str]:
        """Adds to a share of the sums of ``%row``, all of them if there is one loop."""
        steps, tile, count = self.x.steps, range(self.tile), len(self._loops)
        lanes, row_end, made = steps.lanes // count, self.row_bytes - steps.row_bytes, f"%made{number}"
        sums, now = f"vector<{lanes}xf32>", results(made, self.tile)
        lines, places = [f"%own{number} = arith.constant {number * lanes} : index"], f"%kept_at{number}_"
        for t in tile:
            lines += [
                f"{places}{t} = arith.addi %kept_at{t}, %own{number} : index",
                f"%before{number}_{t} = vector.load %kept[{places}{t}] : {self._kept}, {sums}",
            ]
        carried = ", ".join(f"{of_token('%sum', t)} = %before{number}_{t}" for t in tile)
        kinds, own = ", ".join([sums] * self.tile), len(self._lines) // count
        return [
            *lines,
            f"{made}{'' if self.tile == 1 else f':{self.tile}'} = scf.for %step = %first_step to %end_step step %c1 "
            f"iter_args({carried}) -> ({kinds}) {{",
            f"  %x_at = arith.muli %step, %c{steps.width} : index",
            "  %local_step = arith.subi %step, %first_step : index",
            f"  %local_at = arith.muli %local_step, %c{steps.width} : index",
            f"  %in_row_even = arith.muli %step, %c{steps.row_bytes} : index",
            f"  %in_row = arith.minui %in_row_even, %c{row_end} : index",
            "  %at = arith.addi %begin, %in_row : index",
            "  %soon_at = arith.addi %at, %soon : index",
            *within(self._asked_for(self._lines[number * own : number * own + own])),
            *within(for_tokens([*steps.of_x, *self._loops[number]], self.tile, self.x.views())),
            f"  scf.yield {', '.join(of_token('%next', t) for t in tile)} : {kinds}",
            "}",
            *(f"vector.store {now[t]}, %kept[{places}{t}] : {self._kept}, {sums}" for t in tile),
        ]

    def _asked_for(self, lines: Sequence[int]) -> list[str]:
        return prefetches("soon", "%soon_at", self.w, lines if self.ahead else [])

    def _ahead(self) -> list[str]:
        """Makes ``%soon``, the distance from a byte to the byte read so much later.

        Of a later row, or of the next part or group.
        """
        part = self.x.part * self.x.steps.row_bytes
        rows = min(self.group, -(-self.ahead // (part * element_bytes(self.w.kind))))
        back = (self.x.all_parts - 1) * part
        return [
            f"%soon_rows = arith.constant {rows * self.row_bytes} : index",
            f"%soon_part = arith.constant {(rows - self.group) * self.row_bytes + part} : index",
            f"%soon_group = arith.constant {rows * self.row_bytes - back} : index",
            f"%soon_few = arith.constant {rows} : index",
            f"%soon_last = arith.constant {self.x.all_parts - 1} : index",
            "%soon_row = arith.addi %row, %soon_few : index",
            "%soon_own = arith.cmpi ult, %soon_row, %band_end : index",
            "%soon_end = arith.cmpi eq, %x_part, %soon_last : index",
            "%soon_other = arith.select %soon_end, %soon_group, %soon_part : index",
            "%soon = arith.select %soon_own, %soon_rows, %soon_other : index",
        ]

    def _places(self) -> list[str]:
        """Makes ``%kept_at<token>``, the places of a row's sums."""
        lines = [
            "%kept_row = arith.subi %row, %band : index",
            f"%kept_begin = arith.muli %kept_row, %c{self._lanes} : index",
        ]
        for t in range(self.tile):
            lines += [
                f"%kept_skip{t} = arith.constant {t * self.x.steps.lanes} : index",
                f"%kept_at{t} = arith.addi %kept_begin, %kept_skip{t} : index",
            ]
        return lines

    def _for_sums(self, lines: list[str]) -> list[str]:
        """Loops over the group's rows and the tile's tokens, with ``%sum_place`` of a row and a token."""
        return [
            "scf.for %row = %band to %band_end step %c1 {",
            f"  scf.for %of_tile = %c0 to %c{self.tile} step %c1 {{",
            "    %sum_row = arith.subi %row, %band : index",
            f"    %sum_begin = arith.muli %sum_row, %c{self.tile} : index",
            "    %sum_place = arith.addi %sum_begin, %of_tile : index",
            *within(lines, 4),
            "  }",
            "}",
        ]

    def _reduced(self, name: str) -> list[str]:
        """Makes ``%<name>`` of the sums of a row and a token."""
        return [
            f"%sum_at = arith.muli %sum_place, %c{self.x.steps.lanes} : index",
            f"%sums = vector.load %kept[%sum_at] : {self._kept}, {self.sums}",
            *self._lanes_added(name),
        ]

    def _lanes_added(self, name: str) -> list[str]:
        """Makes ``%<name>``, the sum of ``%sums``, in the order of the kernel for one token."""
        apart, few = self.x.steps.apart, self.x.steps.lanes // self.x.steps.apart
        if apart == 1:
            return self.x.steps.reduced(name, "%sums")
        orders = [listed(range(few * i, few * i + few)) for i in range(apart)]
        parts = [f"%part{i} = vector.shuffle %sums, %sums {orders[i]} : {self.sums}, {self.sums}" for i in range(apart)]
        return [*parts, *total(name, [f"%part{i}" for i in range(apart)])]

    def _put(self, name: str) -> list[str]:
        """Stores an f32 of a row and a token to the result."""
        return [
            "%y_token = arith.addi %token, %of_tile : index",
            f"%y_line = arith.muli %y_token, %c{self._outputs} : index",
            "%y_at = arith.addi %y_line, %row : index",
            *stored(name, "%y_at", self.y),
        ]
