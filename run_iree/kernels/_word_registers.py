"""Integers of a packed weight in registers of 512 bits, as words of 16 bits: lines generated from the layout.

A step along a row is one super-block, or four or eight blocks of 32. The bytes of the first plane of a super-block, or
of four blocks, fill one or two registers, in an order in which lanes of 32 bits stand for the same parts of the step in
as many registers as possible: their products are added up before they are scaled. A register of bytes gives two of
words, its even bytes and its odd ones.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from lang_core import BLOCK, BlockLayout, Plane
from run_iree.kernels._instruction_sets import words_permuted
from run_iree.kernels._text import listed

SIZE: Final = 64  # bytes of a register
WORDS: Final = "vector<32xi16>"
_BYTES: Final = "vector<64xi8>"
_MASK: Final = "vector<64xi1>"
_QUAD: Final = 4  # blocks of 32 whose integers fill whole registers


@dataclass(frozen=True, slots=True)
class Register:
    """Integers of 64 columns of a step.

    Attributes:
        field: position of their bits in the bytes of the first plane, counted in integers.
        bytes: byte of the step, for each of them, that has these bits.
        columns: their columns.
    """

    field: int
    bytes: tuple[int, ...]
    columns: tuple[int, ...]

    def parts(self, scaled: int) -> tuple[int, ...]:
        """Returns the part of the step, of ``scaled`` columns, that each lane of four columns belongs to."""
        return tuple(column // scaled for column in self.columns[::4])


def step_blocks(layout: BlockLayout, columns: int) -> int:
    """Returns how many blocks a step has, in rows of so many columns.

    Eight blocks of 32 have half the work with scales; if rows are not whole steps, they may be too many.
    """
    if layout.size > BLOCK:
        return 1
    blocks = columns // BLOCK
    return 2 * _QUAD if blocks >= 2 * _QUAD and -blocks % (2 * _QUAD) <= blocks // 16 else _QUAD


def step_registers(layout: BlockLayout, blocks: int) -> list[list[Register]]:
    """Returns the registers of a step of so many blocks in groups: lanes of a group stand for the same parts."""
    firsts = range(0, blocks, _QUAD) if layout.size == BLOCK else (0,)
    registers = [register for first in firsts for register in _registers(layout, range(first, first + _QUAD))]

    def parts(register: Register) -> tuple[int, ...]:
        return register.parts(layout.scaled)

    return [list(group) for _, group in groupby(sorted(registers, key=parts), parts)]


def _registers(layout: BlockLayout, quad: Iterable[int]) -> Iterator[Register]:
    """Yields the registers of a super-block, or of four blocks of 32."""
    plane = layout.planes[0]
    places = [
        (
            layout.bytes * block + plane.at + byte,
            layout.size * block + byte // plane.span * plane.run + byte % plane.span,
        )
        for block in (quad if layout.size == BLOCK else (0,))
        for byte in range(layout.size * plane.bits // 8)
    ]
    count = len(places) // SIZE
    unit = min(plane.span, layout.scaled) // count
    for number in range(count):
        own = [place for i, place in enumerate(places) if i // unit % count == number]
        for shift in range(8 // plane.bits):
            columns = tuple(column + shift * plane.span for _, column in own)
            yield Register(shift, tuple(byte for byte, _ in own), columns)


@dataclass(slots=True)
class StepLoads:
    """Loads of a step's bytes, from ``%at`` on, and lines that pick pairs of bytes out of them.

    Few loads serve all: of loads that overlap otherwise, the compiler makes inserts byte by byte.

    Attributes:
        size: bytes of a step.
        block: bytes of a block.
        w: type of the weight.
        windows: first bytes of loads of 64 bytes.
        numbers: index constants that the lines need.
    """

    size: int
    block: int
    w: str
    windows: list[int]
    numbers: set[int] = field(default_factory=set[int])

    @staticmethod
    def of(layout: BlockLayout, blocks: int, w: str) -> "StepLoads":
        """Returns the loads of a step: of a super-block, its planes'."""
        sizes = [(plane.at, layout.size * plane.bits // 8) for plane in layout.planes]
        windows = [first for at, size in sizes for first in range(at, at + size, SIZE) if size % SIZE == 0]
        return StepLoads(layout.bytes * blocks, layout.bytes, w, windows if layout.size > BLOCK else [])

    def picked(self, name: str, places: Sequence[int]) -> list[str]:
        """Makes ``%name`` vector<n / 2 x i16> of the bytes in n places of the step."""
        first, end = min(places), max(places) + 1
        if any(place % 2 != places[0] % 2 for place in places[::2]):
            return self._joined(name, places)
        small = next((size for size in (16, 32) if end - first <= size), None)
        begins, size = ([first], small) if small else (self._cover(places), SIZE)
        given, lines = f"vector<{size // 2}xi16>", []
        for i, begin in enumerate(begins):
            lines += self.loaded(f"{name}_bytes{i}", begin, size)
            lines.append(f"%{name}_words{i} = vector.bitcast %{name}_bytes{i} : vector<{size}xi8> to {given}")
        lanes = []
        for place in places[::2]:
            i, begin = next((i, begin) for i, begin in enumerate(begins) if begin <= place <= begin + size - 2)
            lanes.append((size * i + place - begin) // 2)
        left, right = (f"%{name}_words{i}" for i in (0, len(begins) - 1))
        return [*lines, f"%{name} = vector.shuffle {left}, {right} {listed(lanes)} : {given}, {given}"]

    def loaded(self, name: str, begin: int, size: int = SIZE) -> list[str]:
        """Makes ``%name`` of bytes of the step."""
        self.numbers.add(begin)
        return [
            f"%{name}_at = arith.addi %at, %c{begin} : index",
            f"%{name} = vector.load %w[%{name}_at] : {self.w}, vector<{size}xi8>",
        ]

    def _cover(self, places: Sequence[int]) -> list[int]:
        """Returns the first bytes of one or two loads of 64 bytes that have all places; new ones are remembered."""
        known = [window for window in self.windows if window % 2 == places[0] % 2]
        for begins in (*([begin] for begin in known), *([a, b] for a in known for b in known)):
            if all(any(begin <= place <= begin + SIZE - 2 for begin in begins) for place in places[::2]):
                return begins
        first, last = min(places), max(places) + 1 - SIZE
        first -= 0 if first % self.block > BLOCK // 2 or self.block % 2 else first % self.block
        self.windows += [begin for begin in (first, last) if begin not in self.windows]
        return [first, last]

    def _joined(self, name: str, places: Sequence[int]) -> list[str]:
        """Makes the same of four loads of sixteen bytes that lie anywhere."""
        lines, quarter = [], SIZE // 4
        for i, begin in enumerate(places[::quarter]):
            lines += self.loaded(f"{name}_bytes{i}", begin, quarter)
        for i, kind in ((0, "vector<16xi8>"), (2, "vector<16xi8>")):
            order = listed(range(2 * quarter))
            lines.append(
                f"%{name}_half{i} = vector.shuffle %{name}_bytes{i}, %{name}_bytes{i + 1} {order} : {kind}, {kind}"
            )
        return [
            *lines,
            f"%{name}_all = vector.shuffle %{name}_half0, %{name}_half2 {listed(range(SIZE))} : "
            "vector<32xi8>, vector<32xi8>",
            f"%{name} = vector.bitcast %{name}_all : {_BYTES} to {WORDS}",
        ]


def integer_words(layout: BlockLayout, register: Register, name: str, loads: StepLoads) -> list[str]:
    """Makes ``%<name>_even`` and ``%<name>_odd``, vector<32xi16> of the integers of every other column of a register.

    Integers of a table are its values; others are as they are stored, signed if they have 8 bits.
    """
    plane, *others = layout.planes
    lines, value = loads.picked(f"{name}_raw", register.bytes), f"{name}_raw"
    if register.field:
        lines += _with_constant(f"{name}_down", "shrui", value, register.field * plane.bits)
        value = f"{name}_down"
    if layout.table is None and plane.bits < 8:
        lines += _with_constant(f"{name}_only", "andi", value, 0x0101 * ((1 << plane.bits) - 1))
        value = f"{name}_only"
    for i, other in enumerate(others):
        after = f"{name}_with{i}"
        lines += (_with_bit if other.bits == 1 else _with_bits)(layout, other, register, value, after, loads)
        value = after
    if plane.bits == 8:
        up = _with_constant(f"{name}_up", "shli", value, 8)
        return [
            *lines,
            *up,
            *_with_constant(f"{name}_even", "shrsi", f"{name}_up", 8),
            *_with_constant(f"{name}_odd", "shrsi", value, 8),
        ]
    if layout.table is None:
        even = _with_constant(f"{name}_even", "andi", value, 255)
        return [*lines, *even, *_with_constant(f"{name}_odd", "shrui", value, 8)]
    # Five bits choose one of 32 words: bits beside the four are of no account if the table is there twice.
    return [
        *lines,
        f"%{name}_table = arith.constant dense<{listed(layout.table * 2)}> : {WORDS}",
        f"%{name}_even = {words_permuted(f'%{name}_table', f'%{value}')}",
        *_with_constant(f"{name}_above", "shrui", value, 8),
        f"%{name}_odd = {words_permuted(f'%{name}_table', f'%{name}_above')}",
    ]


def _with_constant(name: str, op: str, value: str, constant: int | Sequence[int]) -> list[str]:
    """Makes ``%name`` of words and a constant, the same or one for each."""
    number = constant if isinstance(constant, int) else listed(constant)
    return [
        f"%{name}_k = arith.constant dense<{number}> : {WORDS}",
        f"%{name} = arith.{op} %{value}, %{name}_k : {WORDS}",
    ]


def _source(layout: BlockLayout, plane: Plane, column: int) -> tuple[int, int]:
    """Returns the byte of the step, and the position in it, of a column's bits in a plane."""
    block, within = divmod(column, layout.size)
    run, place = divmod(within, plane.run)
    shift, byte = divmod(place, plane.span)
    return layout.bytes * block + plane.at + run * plane.span + byte, shift * plane.bits


def _with_bit(
    layout: BlockLayout, plane: Plane, register: Register, value: str, name: str, loads: StepLoads
) -> list[str]:
    """Makes ``%name`` of words, with a plane's bit of each integer, by a mask of 64 bytes."""
    sources = [_source(layout, plane, column) for column in register.columns]
    if plane.span == 1:  # bits in the order of columns are the mask itself
        bits = loads.picked(f"{name}_bits", [byte for byte, _ in sources[::8]])
        mask = [f"%{name}_mask = vector.bitcast %{name}_bits : vector<4xi16> to {_MASK}"]
    else:
        bits = loads.picked(f"{name}_bits", [byte for byte, _ in sources])
        mask = [
            f"%{name}_all = vector.bitcast %{name}_bits : {WORDS} to {_BYTES}",
            f"%{name}_own = arith.constant dense<{listed([_signed(1 << bit) for _, bit in sources])}> : {_BYTES}",
            f"%{name}_only = arith.andi %{name}_all, %{name}_own : {_BYTES}",
            f"%{name}_none = arith.constant dense<0> : {_BYTES}",
            f"%{name}_mask = arith.cmpi ne, %{name}_only, %{name}_none : {_BYTES}",
        ]
    return [
        *bits,
        *mask,
        f"%{name}_zero = arith.constant dense<0> : {_BYTES}",
        f"%{name}_one = arith.constant dense<{1 << plane.up}> : {_BYTES}",
        f"%{name}_selected = arith.select %{name}_mask, %{name}_one, %{name}_zero : {_MASK}, {_BYTES}",
        f"%{name}_more = vector.bitcast %{name}_selected : {_BYTES} to {WORDS}",
        f"%{name} = arith.ori %{value}, %{name}_more : {WORDS}",
    ]


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _with_bits(
    layout: BlockLayout, plane: Plane, register: Register, value: str, name: str, loads: StepLoads
) -> list[str]:
    """Makes ``%name`` of words, with a plane's bits of each integer, shifted to their position."""
    sources = [_source(layout, plane, column) for column in register.columns]
    lines, bits = loads.picked(f"{name}_bits", [byte for byte, _ in sources]), f"{name}_bits"
    by = [bit - plane.up for _, bit in sources[::2]]
    for op, amounts in (("shli", [max(-n, 0) for n in by]), ("shrui", [max(n, 0) for n in by])):
        if any(amounts):
            lines += _with_constant(f"{name}_{op}", op, bits, amounts)
            bits = f"{name}_{op}"
    return [
        *lines,
        *_with_constant(f"{name}_only", "andi", bits, 0x0101 * (((1 << plane.bits) - 1) << plane.up)),
        f"%{name} = arith.ori %{value}, %{name}_only : {WORDS}",
    ]
