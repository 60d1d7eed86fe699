"""Parts of the steps of matvecs with AVX2: x in the order of the weights, products, and sums with scales.

x is given in planes of bytes: one plane, or two, of which the first counts ``PLANE_BASE`` times. ``vpmaddubsw``
multiplies unsigned bytes of a row with both; the factor is part of ``vpmaddwd``, which adds neighbours in any case.
If bytes of a row are too large for sums of 16 bits, x is put together as integers of 16 bits instead.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK
from lang_core.ops import PLANE_BASE
from run_iree.kernels._instruction_sets import byte_dot, pair_dot
from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import listed, within

BYTES: Final = f"vector<{BLOCK}xi8>"
PAIRS: Final = "vector<16xi16>"
EIGHT: Final = "vector<8xf32>"
SUMS: Final = "vector<16xf32>"
_WORDS: Final = "vector<8xi32>"
_FACTORS: Final = ("%far", "%ones")
_MOST_PAIRS: Final = 32767 // (2 * 127)  # largest total of unsigned bytes whose pairs of products fit 16 bits


@dataclass(frozen=True, slots=True)
class Integers:
    """Register of 32 integers of a row, unsigned bytes.

    Attributes:
        name: name of the value, without the ``%``.
        columns: column of each byte, counted from the first of the step.
    """

    name: str
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Activations:
    """Integers of x, i8 [planes, columns], as the steps along a row need them.

    Attributes:
        columns: columns of x.
        planes: planes of x.
        width: columns of a step.
        most: columns that are put in order at a time.
        registers: integers of a row in a step, by sums: those that share a sum's scales are added up.
        wide: whether x is put together as integers of 16 bits, because integers of a row are too large.
    """

    columns: int
    planes: int
    width: int
    most: int
    registers: tuple[tuple[Integers, ...], ...]
    wide: bool = False

    @property
    def q(self) -> str:
        """Type of x."""
        return f"memref<{self.planes * self.columns}xi8>"

    @property
    def in_order(self) -> bool:
        """True if the steps read x as it is given."""
        return not self.wide and all(
            integers.columns == tuple(range(integers.columns[0], integers.columns[0] + BLOCK)) for integers in self._all
        )

    @property
    def stack_bytes(self) -> int:
        """Bytes of the stack for each column."""
        return 0 if self.in_order else 2 if self.wide else self.planes

    @property
    def _all(self) -> list[Integers]:
        return [integers for several in self.registers for integers in several]

    @property
    def _scratch(self) -> str:
        return self._arranged.memref

    @property
    def _arranged(self) -> Buffer:
        wide = self.wide
        return Buffer("arranged", self.most if wide else self.planes * self.most, "i16" if wide else "i8")

    def kept(self) -> tuple[Buffer, ...]:
        """Returns the memory for x in order."""
        return () if self.in_order else (self._arranged,)

    def numbers(self) -> list[int]:
        """Returns the index constants that the lines need."""
        places = [self._place(*numbered, part) for numbered in enumerate(self._all) for part in range(self._parts)]
        firsts = [plane * self.columns for plane in range(self.planes)]
        return [self.width, BLOCK, *firsts, *places]

    @property
    def _parts(self) -> int:
        """Registers of x for each register of a row: one for each plane, or even and odd columns."""
        return 2 if self.wide else self.planes

    def _place(self, number: int, integers: Integers, part: int) -> int:
        """Returns the offset of a register of x from the first column of the step."""
        if self.in_order:
            return part * self.columns + integers.columns[0]
        return BLOCK * number + (16 * part if self.wide else self.most * part)

    def before(self) -> list[str]:
        """Returns the lines ahead of all loops."""
        lines = [f"%far = arith.constant dense<{PLANE_BASE}> : {PAIRS}", f"%ones = arith.constant dense<1> : {PAIRS}"]
        if self.in_order:
            return lines
        if self.wide:
            lines.append(f"%low_bytes = arith.constant dense<255> : {PAIRS}")
            lines.append(f"%one_byte = arith.constant dense<8> : {PAIRS}")
            for side in (0, 1):
                for plane, factor in enumerate((PLANE_BASE, 1)[2 - self.planes :]):
                    pair = [0, 0]
                    pair[side] = factor if factor == 1 else -1  # 255 as a signed byte
                    lines.append(f"%pick{side}_{plane} = arith.constant dense<{listed(pair * 16)}> : {BYTES}")
        return lines

    def arranged(self) -> list[str]:
        """Returns the lines that put x of the steps from ``%first_step`` to ``%end_step`` in order."""
        return [] if self.in_order else for_steps(self.width, self._arranged_step())

    def _arranged_step(self) -> list[str]:
        given, lines = f"vector<{self.width}xi8>", []
        for plane in range(self.planes):
            lines += [
                f"%given_at{plane} = arith.addi %from, %c{plane * self.columns} : index",
                f"%given{plane} = vector.load %q[%given_at{plane}] : {self.q}, {given}",
            ]
        for number, integers in enumerate(self._all):
            order = listed(integers.columns)
            for plane in range(self.planes):
                name, source = f"%ordered{number}_{plane}", f"%given{plane}"
                lines.append(f"{name} = vector.shuffle {source}, {source} {order} : {given}, {given}")
                if not self.wide:
                    lines += self._stored(number, integers, plane, name, BYTES)
            for side in range(2 if self.wide else 0):
                lines += self._words(number, side)
                lines += self._stored(number, integers, side, f"%words{number}_{side}", PAIRS)
        return lines

    def _stored(self, number: int, integers: Integers, part: int, name: str, kind: str) -> list[str]:
        place = f"%to{number}_{part}"
        return [
            f"{place} = arith.addi %local, %c{self._place(number, integers, part)} : index",
            f"vector.store {name}, %arranged[{place}] : {self._scratch}, {kind}",
        ]

    def _words(self, number: int, side: int) -> list[str]:
        """Makes ``%words<number>_<side>`` of 16 bits, those of the even bytes of a register, or of the odd ones."""
        name = f"%words{number}_{side}"
        parts = [name if self.planes == 1 else f"{name}_{plane}" for plane in range(self.planes)]
        dots = [byte_dot(f"%pick{side}_{plane}", f"%ordered{number}_{plane}") for plane in range(self.planes)]
        lines = [f"{part} = {dot}" for part, dot in zip(parts, dots, strict=True)]
        return lines if self.planes == 1 else [*lines, f"{name} = arith.addi {parts[0]}, {parts[1]} : {PAIRS}"]

    def dots(self) -> list[str]:
        """Makes ``%dot<i>`` vector<8xi32> of each sum's registers, the products of four neighbouring columns each."""
        lines: list[str] = []
        numbers = iter(range(len(self._all)))
        for i, several in enumerate(self.registers):
            products: list[list[str]] = [[] for _ in range(self._parts)]
            for integers, number in zip(several, numbers, strict=False):
                lines += self._loaded(number, integers)
                lines += _even_and_odd(integers.name) if self.wide else []
                for part, names in enumerate(products):
                    x, name = f"%x{number}_{part}", f"%{integers.name}_by{part}"
                    dot = pair_dot(f"%{integers.name}_{part}", x) if self.wide else byte_dot(f"%{integers.name}", x)
                    lines.append(f"{name} = {dot}")
                    names.append(name)
            terms = [name for names in products for name in names]
            if not self.wide:
                more, terms = _pairs_added(i, products)
                lines += more
            lines += added(f"%dot{i}", terms, _WORDS)
        return lines

    def _loaded(self, number: int, integers: Integers) -> list[str]:
        """Makes ``%x<number>_<part>``, the factor of a register of a row."""
        memory, kind, begin = ("q", self.q, "%x_at") if self.in_order else ("arranged", self._scratch, "%local_at")
        lines = []
        for part in range(self._parts):
            name = f"%x{number}_{part}"
            lines += [
                f"{name}_at = arith.addi {begin}, %c{self._place(number, integers, part)} : index",
                f"{name} = vector.load %{memory}[{name}_at] : {kind}, {PAIRS if self.wide else BYTES}",
            ]
        return lines


def _even_and_odd(name: str) -> list[str]:
    """Makes ``%<name>_0`` and ``%<name>_1`` vector<16xi16> of the even and odd bytes of a register, unsigned."""
    return [
        f"%{name}_words = vector.bitcast %{name} : {BYTES} to {PAIRS}",
        f"%{name}_0 = arith.andi %{name}_words, %low_bytes : {PAIRS}",
        f"%{name}_1 = arith.shrui %{name}_words, %one_byte : {PAIRS}",
    ]


def _pairs_added(i: int, products: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """Adds products vector<16xi16> up plane by plane, then neighbours to 32 bits, times the plane's factor.

    Returns:
        Lines, and the name of each plane's total.
    """
    lines, totals = [], []
    for plane, names in enumerate(products):
        name, factor = f"%dot{i}_{plane}" if len(products) > 1 else f"%dot{i}", _FACTORS[2 - len(products) :][plane]
        lines += added(f"{name}_pairs", names, PAIRS)
        lines.append(f"{name} = {pair_dot(f'{name}_pairs' if len(names) > 1 else names[0], factor)}")
        totals.append(name)
    return lines, totals


def fits_pairs(largest: int, count: int = 1) -> bool:
    """Returns whether sums of 16 bits hold neighbours' products of as many registers of unsigned bytes."""
    return largest * count <= _MOST_PAIRS


def added(name: str, terms: Sequence[str], kind: str) -> list[str]:
    """Makes ``name``, the sum of terms; of a single term nothing is made."""
    lines, total = [], terms[0]
    for i, term in enumerate(terms[1:], 2):
        made = name if i == len(terms) else f"{name}_of{i}"
        lines.append(f"{made} = arith.addi {total}, {term} : {kind}")
        total = made
    return lines


def for_steps(width: int, lines: Iterable[str]) -> list[str]:
    """Loops ahead of the rows over the steps from ``%first_step`` on.

    ``%from`` is the first column of a step ``%part``, ``%local`` the same counted from the first step, ``%local_part``.
    """
    return [
        "scf.for %part = %first_step to %end_step step %c1 {",
        f"  %from = arith.muli %part, %c{width} : index",
        "  %local_part = arith.subi %part, %first_step : index",
        f"  %local = arith.muli %local_part, %c{width} : index",
        *within(lines),
        "}",
    ]
