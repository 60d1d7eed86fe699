"""Parts of the steps of matvecs with AVX2: x in the order of the weights, and sums with scales."""

from collections.abc import Iterable, Sequence
from typing import Final

from lang_core import BLOCK
from run_iree.kernels._instruction_sets import pair_dot
from run_iree.kernels._text import listed, scratch, within

BYTES: Final = f"vector<{BLOCK}xi8>"
EIGHT: Final = "vector<8xf32>"
SUMS: Final = "vector<16xf32>"
ONES: Final = "%ones = arith.constant dense<1> : vector<16xi16>"


def places_in_x(blocks: int) -> range:
    """Returns index constants that lines for steps of so many blocks need."""
    return range(0, blocks * BLOCK + 1, BLOCK)


def for_parts(columns: int, width: int, lines: Iterable[str]) -> list[str]:
    """Loops ahead of all rows over parts of ``width`` columns, which begin at ``%from``."""
    return [
        f"%parts = arith.constant {columns // width} : index",
        "%next_part = arith.constant 1 : index",
        "scf.for %part = %c0 to %parts step %next_part {",
        f"  %from = arith.muli %part, %c{width} : index",
        *within(lines),
        "}",
    ]


def arranged(columns: int, blocks: int, offsets: Sequence[str]) -> list[str]:
    """Puts x in order ahead of all rows, by pairs of blocks that are half a step apart.

    ``%arranged`` has the first sixteen of both, then the others; ``%minus`` is that of ``minus_made``.

    Args:
        columns: columns of x.
        blocks: blocks of a step.
        offsets: lines that make ``%offsets`` of ``%float_totals``, both f32 of a step's blocks.
    """
    x, width = f"memref<{columns}xi8>", blocks * BLOCK
    given = f"vector<{width}xi8>"
    lines = [f"%given = vector.load %q[%from] : {x}, {given}", *minus_made(columns, blocks, offsets)]
    for place in range(0, width, BLOCK):
        pair, first = place // (2 * BLOCK), place // BLOCK % 2 * (BLOCK // 2)
        order = [BLOCK * block + first + i for block in (pair, pair + blocks // 2) for i in range(BLOCK // 2)]
        lines += [
            f"%ordered{place} = vector.shuffle %given, %given {listed(order)} : {given}, {given}",
            f"%to{place} = arith.addi %from, %c{place} : index",
            f"vector.store %ordered{place}, %arranged[%to{place}] : {x}, {BYTES}",
        ]
    minus = f"memref<{columns // BLOCK}xf32>"
    return [scratch("arranged", x), scratch("minus", minus), *for_parts(columns, width, lines)]


def minus_made(columns: int, blocks: int, offsets: Sequence[str]) -> list[str]:
    """Stores ``%offsets`` of a part to ``%minus``: factors of the minima, or of the offset, of a block's weights."""
    total, minus = f"memref<{columns // BLOCK}xi32>", f"memref<{columns // BLOCK}xf32>"
    few = f"vector<{blocks}xf32>"
    return [
        f"%from_block = arith.muli %part, %c{blocks} : index",
        f"%totals = vector.load %total[%from_block] : {total}, vector<{blocks}xi32>",
        f"%float_totals = arith.sitofp %totals : vector<{blocks}xi32> to {few}",
        *offsets,
        f"vector.store %offsets, %minus[%from_block] : {minus}, {few}",
    ]


def arranged_pair(pair: int, columns: int) -> list[str]:
    """Makes ``%x_low<pair>`` and ``%x_high<pair>``, the halves of a pair's columns."""
    lines = []
    for name, place in (("x_low", 2 * BLOCK * pair), ("x_high", 2 * BLOCK * pair + BLOCK)):
        lines += [
            f"%{name}_at{pair} = arith.addi %x_at, %c{place} : index",
            f"%{name}{pair} = vector.load %arranged[%{name}_at{pair}] : memref<{columns}xi8>, {BYTES}",
        ]
    return lines


def block_of_x(block: int, columns: int) -> list[str]:
    """Makes ``%xq<block>`` of x as it is stored."""
    return [
        f"%xq_at{block} = arith.addi %x_at, %c{BLOCK * block} : index",
        f"%xq{block} = vector.load %q[%xq_at{block}] : memref<{columns}xi8>, {BYTES}",
    ]


def scales_of_x(columns: int, blocks: int) -> list[str]:
    """Makes ``%x_scales`` of a step's blocks."""
    return [
        f"%x_scales_at = arith.muli %step, %c{blocks} : index",
        f"%x_scales = vector.load %scale[%x_scales_at] : memref<{columns // BLOCK}xf32>, vector<{blocks}xf32>",
    ]


def minus_of_x(columns: int, blocks: int) -> str:
    """Makes ``%x_minus`` of what ``minus_made`` stored for a step's blocks."""
    return f"%x_minus = vector.load %minus[%x_scales_at] : memref<{columns // BLOCK}xf32>, vector<{blocks}xf32>"


def summed(lanes: Sequence[Sequence[int]], scales: str, begin: str, less: str | None = None) -> list[str]:
    """Makes ``%next`` of ``%sum`` as two sums that do not wait for each other.

    Args:
        lanes: for each ``%pairs<i>`` vector<16xi16>, which of ``%scales`` its eight sums of two are multiplied with.
        scales: type of ``%scales``.
        begin: sums so far, vector<16xf32>.
        less: vector<8xf32> to add.
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
        lines += [
            f"%dot{i} = {pair_dot(f'%pairs{i}', '%ones')}",
            f"%float{i} = arith.sitofp %dot{i} : vector<8xi32> to {EIGHT}",
            f"%by{i} = vector.shuffle %scales, %scales {listed(places)} : {scales}, {scales}",
            f"%sum{i} = math.fma %float{i}, %by{i}, {sums[i % 2]} : {EIGHT}",
        ]
        sums[i % 2] = f"%sum{i}"
    return [*lines, f"%next = vector.shuffle {sums[0]}, {sums[1]} {listed(range(16))} : {EIGHT}, {EIGHT}"]


def less_of_blocks(factors: str, blocks: int) -> list[str]:
    """Makes ``%less`` vector<8xf32>: these factors, f32 of a step's blocks, times ``%x_minus``."""
    few, lanes = f"vector<{blocks}xf32>", listed([min(lane, blocks) for lane in range(8)])
    return [
        f"%few_less = arith.mulf {factors}, %x_minus : {few}",
        f"%few_none = arith.constant dense<0.0> : {few}",
        f"%less = vector.shuffle %few_less, %few_none {lanes} : {few}, {few}",
    ]
