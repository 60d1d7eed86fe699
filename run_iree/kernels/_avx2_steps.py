"""Steps of a matvec with AVX2 along rows of any layout: products of integers, then their scales, offsets and minima."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._avx2_minus import SIXTEENS, Minus, largest_integer
from run_iree.kernels._avx2_row import EIGHT, SUMS, Activations, Integers, fits_pairs
from run_iree.kernels._instruction_sets import neighbours_added
from run_iree.kernels._packed_matvec import RowSteps
from run_iree.kernels._text import listed

# A kernel may have 32 KiB of the stack: x in order, its sums, and sums of rows if x is put in order in parts.
_STACK: Final = 31 << 10
_SUMS_OF_ROWS: Final = 2 << 10


@dataclass(frozen=True, slots=True)
class Reading:
    """Lines that read the bytes of a row at a step, from ``%at`` on.

    Attributes:
        encoding: encoding of the row.
        blocks: blocks of x in a step.
        registers: unsigned integers, by sums: registers with the same scales in their lanes are added up.
        constants: lines ahead of all loops.
        numbers: index constants that the lines need.
        loaded: lines that load integers, ahead of the overlapping loads of the scales.
        scales: lines that make ``%w_scales``, and ``%minima`` of layouts that have them.
        unpacked: lines that make the integers.
    """

    encoding: Encoding
    blocks: int
    registers: tuple[tuple[Integers, ...], ...]
    constants: Sequence[str]
    numbers: Sequence[int]
    loaded: Sequence[str]
    scales: Sequence[str]
    unpacked: Sequence[str]


def row_steps(
    columns: int, planes: int, reading: Reading, at_once: int | None = None, *, exact_blocks: bool = False
) -> RowSteps:
    """Returns the steps along rows, for x of so many columns and planes.

    Layouts with a scale for sixteen columns have their scales in the order of ``SIXTEENS``. With ``at_once`` x of so
    many steps is prepared at a time, else of as many as the stack takes. See ``block_sums`` for ``exact_blocks``.
    """
    encoding, blocks, registers = reading.encoding, reading.blocks, reading.registers
    width, largest = blocks * BLOCK, largest_integer(encoding)
    wide = not fits_pairs(largest, max(map(len, registers)))
    x = Activations(columns, planes, width, columns, registers, wide)
    minus = Minus(encoding, columns, planes, blocks, columns, exact_blocks)
    most = width * at_once if at_once else most_columns(columns, width, x.stack_bytes + minus.stack_bytes)
    x, minus = replace(x, most=most), replace(minus, most=most)
    sixteens = encoding.layout.scaled < BLOCK
    scaled = _scaled_sixteens() if sixteens else [f"%scales = arith.mulf %w_scales, %x_scales : vector<{blocks}xf32>"]
    begin, less = "%sum", None
    if minus.needed and not exact_blocks:
        scaled += minus.less()
        begin, less = ("%sum_less", None) if sixteens else ("%sum", "%less")
    if exact_blocks:
        sums = block_sums(blocks, len(registers), offset=minus.exact_needed, minima=encoding.layout.minimum is not None)
    else:
        lanes = [_lanes(several[0], encoding.layout.scaled) for several in registers]
        sums = summed(lanes, SUMS if sixteens else f"vector<{blocks}xf32>", begin, less)
    return RowSteps(
        width,
        encoding.block_bytes * width // encoding.block,
        [*reading.numbers, *x.numbers(), *minus.numbers()],
        [*reading.constants, *x.before()],
        [*scales_of_x(columns, blocks), *minus.of_x()],
        [
            *reading.loaded,
            *reading.scales,
            *scaled,
            *reading.unpacked,
            *x.dots(),
            *sums,
        ],
        [*minus.made(), *x.arranged()],
        most // width,
        lanes=blocks if exact_blocks else 16,
        in_turn=exact_blocks,
        kept=(*x.kept(), *minus.kept()),
    )


def most_columns(columns: int, width: int, column_bytes: float) -> int:
    """Returns how many columns are prepared at a time, whole steps that take so many bytes of the stack each."""
    if columns * column_bytes <= _STACK:
        return columns
    return int((_STACK - _SUMS_OF_ROWS) / column_bytes) // width * width


def _lanes(integers: Integers, scaled: int) -> list[int]:
    """Returns which scale each of eight sums of a register has."""
    parts = [integers.columns[4 * lane] // scaled for lane in range(8)]
    return parts if scaled == BLOCK else [SIXTEENS.index(part) for part in parts]


def _scaled_sixteens() -> list[str]:
    """Makes ``%scales`` vector<16xf32> of ``%w_scales`` in the order of ``SIXTEENS``."""
    blocks = listed([part // 2 for part in SIXTEENS])
    return [
        f"%both_x_scales = vector.shuffle %x_scales, %x_scales {blocks} : {EIGHT}, {EIGHT}",
        f"%scales = arith.mulf %w_scales, %both_x_scales : {SUMS}",
    ]


def scales_of_x(columns: int, blocks: int) -> list[str]:
    """Makes ``%x_scales`` of a step's blocks."""
    return [
        f"%x_scales_at = arith.muli %step, %c{blocks} : index",
        f"%x_scales = vector.load %scale[%x_scales_at] : memref<{columns // BLOCK}xf32>, vector<{blocks}xf32>",
    ]


def summed(
    lanes: Sequence[Sequence[int]], scales: str, begin: str, less: str | None = None, *, names: Sequence[str] = ()
) -> list[str]:
    """Makes ``%next`` of ``%sum`` as two sums that do not wait for each other.

    Args:
        lanes: for each ``%dot<i>`` vector<8xi32>, which of ``%scales`` its eight lanes are multiplied with.
        scales: type of ``%scales``.
        begin: sums so far, vector<16xf32>.
        less: vector<8xf32> to add.
        names: scales of each, if they are not ``%scales``.
    """
    sums = ["%first_sum", "%second_sum"]
    lines = [
        f"%first_sum = vector.shuffle {begin}, {begin} {listed(range(8))} : {SUMS}, {SUMS}",
        f"%second_sum = vector.shuffle {begin}, {begin} {listed(range(8, 16))} : {SUMS}, {SUMS}",
    ]
    if less is not None:
        lines.append(f"%second_less = arith.addf %second_sum, {less} : {EIGHT}")
        sums[1] = "%second_less"
    for i, places in enumerate(lanes):
        name = names[i] if names else "%scales"
        lines += [
            f"%float{i} = arith.sitofp %dot{i} : vector<8xi32> to {EIGHT}",
            f"%by{i} = vector.shuffle {name}, {name} {listed(places)} : {scales}, {scales}",
            f"%sum{i} = math.fma %float{i}, %by{i}, {sums[i % 2]} : {EIGHT}",
        ]
        sums[i % 2] = f"%sum{i}"
    return [*lines, f"%next = vector.shuffle {sums[0]}, {sums[1]} {listed(range(16))} : {EIGHT}, {EIGHT}"]


def block_sums(blocks: int, registers: int, *, offset: bool, minima: bool) -> list[str]:
    """Makes ``%next`` vector<blocks x f32> of ``%sum``, with the steps' blocks b in lane b.

    Products of a block are summed exactly, and scaled once, like the kernels of prompts, which have a token per lane.

    Args:
        blocks: blocks of a step, 6 or 8.
        registers: number of ``%dot<i>`` vector<8xi32>: for each block one, or half as many, of which register i has
            block i in its lower half and block i + registers in its upper one.
        offset: whether ``%x_minus`` i32 is added to the products.
        minima: whether ``%minima`` times ``%x_minus`` f32 is added.
    """
    lines, fours, words = list[str](), list[str](), "vector<8xi32>"
    for first in range(0, registers, 4):
        a, b, c, d = (f"%dot{min(first + i, registers - 1)}" for i in range(4))
        fours.append(f"%fours{first}")
        lines += [
            f"%twos{first} = {neighbours_added(a, b)}",
            f"%twos{first + 2} = {neighbours_added(c, d)}",
            f"%fours{first} = {neighbours_added(f'%twos{first}', f'%twos{first + 2}')}",
        ]
    few = f"vector<{blocks}xi32>"
    if registers < blocks:
        order = listed([*range(registers), *range(4, 4 + registers)])
        lines.append(f"%products = vector.shuffle %fours0, %fours0 {order} : {words}, {words}")
    else:
        for half in range(2):
            order = listed([*range(4 * half, 4 * half + 4), *range(8 + 4 * half, 8 + 4 * half + blocks - 4)])
            lines.append(f"%halves_of{half} = vector.shuffle {fours[0]}, {fours[1]} {order} : {words}, {words}")
        lines.append(f"%products = arith.addi %halves_of0, %halves_of1 : {few}")
    floats, total, before = f"vector<{blocks}xf32>", "%products", "%sum"
    if offset:
        lines.append(f"%values = arith.addi {total}, %x_minus : {few}")
        total = "%values"
    if minima:
        lines.append(f"%less = math.fma %minima, %x_minus, %sum : {floats}")
        before = "%less"
    return [
        *lines,
        f"%float = arith.sitofp {total} : {few} to {floats}",
        f"%next = math.fma %float, %scales, {before} : {floats}",
    ]
