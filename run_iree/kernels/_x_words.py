"""x of one token as words of 16 bits, in the order in which a step reads the integers of the weights.

It is made once for all rows of a workgroup, and kept on the stack: words, and beside them the factors that belong to x,
which are scales of its blocks, and sums that minima and offsets are multiplied with. Two planes of 8 bits, a high one
and a low one, become 255 * high + low.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, BlockLayout
from run_iree.kernels._instruction_sets import word_dot
from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import listed, within
from run_iree.kernels._word_registers import SIZE, WORDS, Register, step_blocks

_STACK: Final = 30 << 10  # bytes for x; a kernel may have 32 KiB
_BYTES: Final = f"vector<{SIZE}xi8>"
_TOTALS: Final = "vector<16xi32>"
_SUMS: Final = "vector<16xf32>"


@dataclass(frozen=True, slots=True)
class XWords:
    """x of a row's steps.

    Attributes:
        columns: columns of a row.
        planes: planes of q.
        layout: layout of the weights.
        groups: registers of a step, as ``step_registers`` returns them.
        at_once: steps for which x is kept at a time; None for as many as the stack holds.
    """

    columns: int
    planes: int
    layout: BlockLayout
    groups: Sequence[Sequence[Register]]
    at_once: int | None = None

    @property
    def width(self) -> int:
        """Columns of a step."""
        return step_blocks(self.layout, self.columns) * self.layout.size

    @property
    def blocks(self) -> int:
        """Blocks of x in a step."""
        return self.width // BLOCK

    @property
    def lanes(self) -> int:
        """Lanes of a vector of scales, or of scales and then minima."""
        if self.layout.sub_scales is not None:
            return 16
        return self.blocks * (1 if self.layout.minimum is None else 2)

    @property
    def has_less(self) -> bool:
        """True if sums of x have factors: minima, or an offset of the integers."""
        return self.layout.minimum is not None or bool(self.layout.offset)

    @property
    def floats(self) -> int:
        """Factors of a step."""
        return self.lanes * (2 if self.has_less else 1)

    @property
    def most(self) -> int:
        """Steps for which x is kept at a time."""
        if self.at_once is not None:
            return self.at_once
        steps = -(-self.columns // self.width)
        parts = -(-steps * (2 * self.width + 4 * self.floats) // _STACK)
        return -(-steps // parts)

    @property
    def numbers(self) -> list[int]:
        """Index constants that the lines need."""
        places = range(0, self.width, SIZE // 2)
        return [1, BLOCK, self.width, self.columns, self.columns - self.width, self.floats, self.lanes, *places]

    def loaded(self) -> list[str]:
        """Makes ``%x_<register>_even`` and ``%x_<register>_odd``, ``%x_scales``, and ``%x_less`` if there are such."""
        lines = [
            f"%x_floats_at = arith.muli %local_step, %c{self.floats} : index",
            f"%x_scales = vector.load %x_floats[%x_floats_at] : {self._floats}, vector<{self.lanes}xf32>",
        ]
        for name, place in self._places():
            lines += [
                f"%{name}_at = arith.addi %local_at, %c{place} : index",
                f"%{name} = vector.load %x_words[%{name}_at] : {self._words}, {WORDS}",
            ]
        if self.has_less:
            lines += [
                f"%x_less_at = arith.addi %x_floats_at, %c{self.lanes} : index",
                f"%x_less = vector.load %x_floats[%x_less_at] : {self._floats}, vector<{self.lanes}xf32>",
            ]
        return lines

    def kept(self) -> tuple[Buffer, ...]:
        """Returns the memories for x."""
        return Buffer("x_words", self.most * self.width, "i16"), Buffer("x_floats", self.most * self.floats, "f32")

    def arranged(self) -> list[str]:
        """Stores x of the steps from ``%first_step`` to ``%end_step``."""
        width, at = self.width, "%kept_at"
        lines = [
            "%kept_number = arith.subi %kept, %first_step : index",
            f"%x_words_to = arith.muli %kept_number, %c{width} : index",
            f"%x_floats_to = arith.muli %kept_number, %c{self.floats} : index",
            f"{at} = arith.muli %kept, %c{width} : index",
        ]
        if self.columns % width:
            lines.append(f"%kept_at_most = arith.minui {at}, %c{self.columns - width} : index")
            at = "%kept_at_most"
        lines.append(f"%kept_block = arith.divui {at}, %c{BLOCK} : index")
        made = [*lines, *self._words_made(at), *self._scales_made()]
        return ["scf.for %kept = %first_step to %end_step step %c1 {", *within(made), "}"]

    @property
    def _words(self) -> str:
        return self.kept()[0].memref

    @property
    def _floats(self) -> str:
        return self.kept()[1].memref

    def _registers(self) -> list[tuple[str, Register]]:
        return [(f"x_{g}_{r}", register) for g, group in enumerate(self.groups) for r, register in enumerate(group)]

    def _places(self) -> list[tuple[str, int]]:
        names = [f"{name}_{half}" for name, _ in self._registers() for half in ("even", "odd")]
        return [(name, SIZE // 2 * i) for i, name in enumerate(names)]

    def _words_made(self, at: str) -> list[str]:
        """Stores the words of each register, and makes values of their names."""
        given, lines = f"vector<{self.width}xi8>", []
        for plane in range(self.planes):
            place = f"%kept_plane{plane}" if plane else at
            lines += [f"{place} = arith.addi {at}, %c{self.columns} : index"] if plane else []
            lines.append(
                f"%x_plane{plane} = vector.load %q[{place}] : memref<{self.planes * self.columns}xi8>, {given}"
            )
        lines += [
            f"%x_eight = arith.constant dense<8> : {WORDS}",
            f"%x_high_unit = arith.constant dense<255> : {WORDS}",
        ]
        for name, register in self._registers():
            for plane in range(self.planes):
                part = f"{name}_plane{plane}"
                lines += [
                    f"%{part}_bytes = vector.shuffle %x_plane{plane}, %x_plane{plane} {listed(register.columns)} : "
                    f"{given}, {given}",
                    f"%{part} = vector.bitcast %{part}_bytes : {_BYTES} to {WORDS}",
                    f"%{part}_up = arith.shli %{part}, %x_eight : {WORDS}",
                    f"%{part}_even = arith.shrsi %{part}_up, %x_eight : {WORDS}",
                    f"%{part}_odd = arith.shrsi %{part}, %x_eight : {WORDS}",
                ]
        for name, place in self._places():
            register, half = name.rsplit("_", 1)
            lines += self._joined(register, half)
            lines += [
                f"%{name}_to = arith.addi %x_words_to, %c{place} : index",
                f"vector.store %{name}, %x_words[%{name}_to] : {self._words}, {WORDS}",
            ]
        return lines

    def _joined(self, register: str, half: str) -> list[str]:
        """Makes ``%<register>_<half>`` of its planes."""
        name, high = f"%{register}_{half}", f"%{register}_plane0_{half}"
        if self.planes == 1:
            return [f"{name} = vector.shuffle {high}, {high} {listed(range(SIZE // 2))} : {WORDS}, {WORDS}"]
        return [
            f"{name}_high = arith.muli {high}, %x_high_unit : {WORDS}",
            f"{name} = arith.addi {name}_high, %{register}_plane1_{half} : {WORDS}",
        ]

    def _scales_made(self) -> list[str]:
        """Stores the factors."""
        few, scales = f"vector<{self.blocks}xf32>", f"memref<{self.columns // BLOCK}xf32>"
        lines = [
            f"%x_given = vector.load %scale[%kept_block] : {scales}, {few}",
            *self._counted(few),
            f"%x_zeros = arith.constant dense<0.0> : {few}",
            *self._spread("x_scales_kept", "%x_own", minima=False),
            f"vector.store %x_scales_kept, %x_floats[%x_floats_to] : {self._floats}, vector<{self.lanes}xf32>",
        ]
        if not self.has_less:
            return lines
        layout = self.layout
        factor = float(-layout.offset if layout.minimum is None else 1 if layout.adds_minimum else -1)
        if layout.scaled < BLOCK:
            lines += [*self._sums_of_parts(), f"%x_by = arith.constant dense<{factor}> : {_SUMS}"]
            lines += [
                f"%x_floated = arith.sitofp %x_sums : {_TOTALS} to {_SUMS}",
                f"%x_scaled = arith.mulf %x_floated, %x_scales_kept : {_SUMS}",
                f"%x_less_kept = arith.mulf %x_scaled, %x_by : {_SUMS}",
            ]
        else:
            totals = f"memref<{self.columns // BLOCK}xi32>"
            lines += [
                f"%x_totals = vector.load %total[%kept_block] : {totals}, vector<{self.blocks}xi32>",
                f"%x_by = arith.constant dense<{factor}> : {few}",
                f"%x_floated = arith.sitofp %x_totals : vector<{self.blocks}xi32> to {few}",
                f"%x_scaled = arith.mulf %x_floated, %x_own : {few}",
                f"%x_times = arith.mulf %x_scaled, %x_by : {few}",
                *self._spread("x_less_kept", "%x_times", minima=layout.minimum is not None),
            ]
        return [
            *lines,
            f"%x_less_to = arith.addi %x_floats_to, %c{self.lanes} : index",
            f"vector.store %x_less_kept, %x_floats[%x_less_to] : {self._floats}, vector<{self.lanes}xf32>",
        ]

    def _counted(self, few: str) -> list[str]:
        """Makes ``%x_own`` of ``%x_given``: 0 for blocks that an earlier step has, if the last one begins early."""
        if self.columns % self.width == 0:
            return [f"%x_own = vector.shuffle %x_given, %x_given {listed(range(self.blocks))} : {few}, {few}"]
        kind = f"vector<{self.blocks}xindex>"
        return [
            f"%x_numbers = arith.constant dense<{listed(range(self.blocks))}> : {kind}",
            "%x_before = arith.subi %kept_at, %kept_at_most : index",
            "%x_earlier = arith.divui %x_before, %c32 : index",
            f"%x_all_earlier = vector.broadcast %x_earlier : index to {kind}",
            f"%x_is_own = arith.cmpi uge, %x_numbers, %x_all_earlier : {kind}",
            f"%x_nothing = arith.constant dense<0.0> : {few}",
            f"%x_own = arith.select %x_is_own, %x_given, %x_nothing : vector<{self.blocks}xi1>, {few}",
        ]

    def _spread(self, name: str, value: str, *, minima: bool) -> list[str]:
        """Makes ``%name`` of all lanes from a value of each block of x: for scales, or for the minima after them."""
        few, count, none = f"vector<{self.blocks}xf32>", self.blocks, self.blocks
        own = [part * self.layout.scaled // BLOCK for part in range(self.width // self.layout.scaled)]
        if self.layout.minimum is not None and len(own) == count:
            order = [none] * count + own if minima else own + [none] * count
        else:
            order = own * (self.lanes // len(own))
        return [f"%{name} = vector.shuffle {value}, %x_zeros {listed(order)} : {few}, {few}"]

    def _sums_of_parts(self) -> list[str]:
        """Makes ``%x_sums``: sums of x's integers in each part of sixteen columns."""
        lines, parts = [f"%x_ones = arith.constant dense<1> : {WORDS}"], list[int]()
        for g, group in enumerate(self.groups):
            parts += group[0].parts(self.layout.scaled)
            total = ""
            for name in (f"%x_{g}_{r}_{half}" for r in range(len(group)) for half in ("even", "odd")):
                lines.append(f"{name}_dot = {word_dot(name, '%x_ones')}")
                if total:
                    lines.append(f"{name}_sum = arith.addi {total}, {name}_dot : {_TOTALS}")
                total = f"{name}_sum" if total else f"{name}_dot"
            lines.append(f"%x_group{g} = vector.shuffle {total}, {total} {listed(range(16))} : {_TOTALS}, {_TOTALS}")
        names = [f"%x_group{g}" for g in range(len(self.groups))]
        lanes = 16
        while len(names) > 1:
            kind, order = f"vector<{lanes}xi32>", listed(range(2 * lanes))
            pairs = list(zip(names[::2], names[1::2], strict=True))
            lines += [f"{a}_{lanes} = vector.shuffle {a}, {b} {order} : {kind}, {kind}" for a, b in pairs]
            names, lanes = [f"{a}_{lanes}" for a, _ in pairs], 2 * lanes
        (all_lanes,), kind, total = names, f"vector<{lanes}xi32>", ""
        for i in range(lanes // 16):
            order = [[lane for lane, part in enumerate(parts) if part == number][i] for number in range(16)]
            lines.append(f"%x_lane{i} = vector.shuffle {all_lanes}, {all_lanes} {listed(order)} : {kind}, {kind}")
            after = "%x_sums" if i == lanes // 16 - 1 else f"%x_some{i}"
            if total:
                lines.append(f"{after} = arith.addi {total}, %x_lane{i} : {_TOTALS}")
            total = after if total else "%x_lane0"
        return lines
