"""Steps of a matvec with AVX2 along rows of super-blocks: 256 columns at a time.

As with blocks of 32 a register has integers of two blocks, or of two parts of one, so that eight sums of products have
two scales, which lie in the same places of a register's halves.
"""

from collections.abc import Sequence
from typing import Final

from lang_core import BLOCK, BlockLayout, Encoding
from run_iree.kernels._avx2_row import (
    BYTES,
    EIGHT,
    ONES,
    SUMS,
    arranged,
    arranged_pair,
    block_of_x,
    for_parts,
    less_of_blocks,
    minus_made,
    minus_of_x,
    places_in_x,
    scales_of_x,
    summed,
)
from run_iree.kernels._instruction_sets import byte_dot, neighbours_added, pair_dot
from run_iree.kernels._packed_matvec import Steps
from run_iree.kernels._sub_scales import part_scales
from run_iree.kernels._super_block import (
    chunks_of_group,
    group_integers,
    super_block_constants,
    super_block_numbers,
)
from run_iree.kernels._text import listed, scratch

_BLOCKS: Final = 8
_PAIRS: Final = range(_BLOCKS // 2)
# Sixteen scales: those of the first parts of four blocks, then those of the second.
_PARTS: Final = (0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)


def super_block_steps(columns: int, encoding: Encoding, w: str) -> Steps:
    """Returns the steps along super-blocks, of a weight of type ``w``.

    Layouts with minima have eight scales, those with an offset sixteen.
    """
    layout = encoding.layout
    if layout.minimum is None:
        return _offset_steps(columns, encoding, w)
    steps = _nibble_steps if len(layout.planes) == 1 and encoding.bits == 4 else _minima_steps
    return steps(columns, encoding, w)


def _nibble_steps(columns: int, encoding: Encoding, w: str) -> Steps:
    """Returns the steps for integers of four bits: low ones of two blocks share a register, x is arranged likewise.

    The minima meet the sums of x, which are made once for all rows.
    """
    before = [
        *super_block_constants(encoding),
        ONES,
        f"%nibble = arith.constant dense<15> : {BYTES}",
        f"%four = arith.constant dense<4> : {BYTES}",
        *arranged(columns, _BLOCKS, _offsets(columns)),
    ]
    of_x = [*scales_of_x(columns, _BLOCKS), minus_of_x(columns, _BLOCKS)]
    of_row = [*_scales_and_minima(encoding, w), *_nibbles(encoding.layout, w)]
    for pair in _PAIRS:
        side, chunk = ("low", "high")[pair % 2], pair // 2
        of_x += arranged_pair(pair, columns)
        of_row += [
            f"%first_pairs{pair} = {byte_dot(f'%{side}{chunk}_0', f'%x_low{pair}')}",
            f"%second_pairs{pair} = {byte_dot(f'%{side}{chunk}_16', f'%x_high{pair}')}",
            f"%pairs{pair} = arith.addi %first_pairs{pair}, %second_pairs{pair} : vector<16xi16>",
        ]
    of_row += summed([[pair] * 4 + [pair + 4] * 4 for pair in _PAIRS], EIGHT, "%sum", "%less")
    numbers = (_BLOCKS, *places_in_x(_BLOCKS), *range(16, encoding.block_bytes, 16), *super_block_numbers(encoding))
    return Steps(encoding.block, encoding.block_bytes, numbers, before, of_x, of_row)


def _minima_steps(columns: int, encoding: Encoding, w: str) -> Steps:
    """Returns the steps for integers of other sizes with minima: block after block, x as it is stored."""
    sums = minus_made(columns, _BLOCKS, _offsets(columns))
    before = [
        *super_block_constants(encoding),
        ONES,
        scratch("minus", f"memref<{columns // BLOCK}xf32>"),
        *for_parts(columns, BLOCK * _BLOCKS, sums),
    ]
    of_x = [*scales_of_x(columns, _BLOCKS), minus_of_x(columns, _BLOCKS)]
    of_row = _scales_and_minima(encoding, w)
    for block in range(_BLOCKS):
        of_x += block_of_x(block, columns)
        of_row += _block_pairs(block, encoding, w)
    of_row += summed([[block] * 8 for block in range(_BLOCKS)], EIGHT, "%sum", "%less")
    return _steps(encoding, before, of_x, of_row)


def _offset_steps(columns: int, encoding: Encoding, w: str) -> Steps:
    """Returns the steps for sixteen scales, without minima; the offset of the integers meets sums of sixteen of x."""
    minus = f"memref<{columns // 16}xf32>"
    before = [*super_block_constants(encoding), ONES, *_sums_of_sixteen(columns, encoding.layout, minus)]
    twice = listed([*range(4), *range(4), *range(4, 8), *range(4, 8)])
    of_x = [
        *scales_of_x(columns, _BLOCKS),
        f"%both_x_scales = vector.shuffle %x_scales, %x_scales {twice} : {EIGHT}, {EIGHT}",
        "%x_minus_at = arith.muli %step, %c16 : index",
        f"%x_minus = vector.load %minus[%x_minus_at] : {minus}, {SUMS}",
    ]
    of_row = [
        *part_scales(encoding, "", w, _PARTS),
        f"%scales = arith.mulf %scaled, %both_x_scales : {SUMS}",
        f"%sum_less = math.fma %scales, %x_minus, %sum : {SUMS}",
    ]
    lanes: list[Sequence[int]] = []
    for block in range(_BLOCKS):
        of_x += block_of_x(block, columns)
        of_row += _block_pairs(block, encoding, w)
        place = 8 * (block // 4) + block % 4
        lanes.append([place] * 4 + [place + 4] * 4)
    of_row += summed(lanes, SUMS, "%sum_less")
    return _steps(encoding, before, of_x, of_row)


def _steps(encoding: Encoding, before: list[str], of_x: list[str], of_row: list[str]) -> Steps:
    numbers = (_BLOCKS, 16, *super_block_numbers(encoding), *places_in_x(_BLOCKS))
    return Steps(encoding.block, encoding.block_bytes, numbers, before, of_x, of_row)


def _offsets(columns: int) -> list[str]:
    """Makes ``%offsets``: minus the sums of x, scaled, of a part's blocks."""
    return [
        f"%part_scales = vector.load %scale[%from_block] : memref<{columns // BLOCK}xf32>, {EIGHT}",
        f"%part_sums = arith.mulf %float_totals, %part_scales : {EIGHT}",
        f"%offsets = arith.negf %part_sums : {EIGHT}",
    ]


def _scales_and_minima(encoding: Encoding, w: str) -> list[str]:
    """Makes ``%scales``, those of the row times those of x, and ``%less``, the minima times ``%x_minus``."""
    return [
        *part_scales(encoding, "", w),
        f"%w_scales = vector.shuffle %scaled, %scaled {listed(range(8))} : {SUMS}, {SUMS}",
        f"%minima = vector.shuffle %scaled, %scaled {listed(range(8, 16))} : {SUMS}, {SUMS}",
        f"%scales = arith.mulf %w_scales, %x_scales : {EIGHT}",
        *less_of_blocks("%minima", _BLOCKS),
    ]


def _nibbles(layout: BlockLayout, w: str) -> list[str]:
    """Makes ``%low<chunk>_<part>`` and ``%high<chunk>_<part>`` of the chunks 0 and 1, beside those two further."""
    (plane,), half, lines = layout.planes, "vector<16xi8>", []
    for chunk in (0, 1):
        for part in (0, 16):
            name, first = f"{chunk}_{part}", plane.at + 32 * chunk + part
            lines += [
                f"%first_at{name} = arith.addi %at, %c{first} : index",
                f"%second_at{name} = arith.addi %at, %c{first + 64} : index",
                f"%first{name} = vector.load %w[%first_at{name}] : {w}, {half}",
                f"%second{name} = vector.load %w[%second_at{name}] : {w}, {half}",
                f"%both{name} = vector.shuffle %first{name}, %second{name} {listed(range(32))} : {half}, {half}",
                f"%low{name} = arith.andi %both{name}, %nibble : {BYTES}",
                f"%high{name} = arith.shrui %both{name}, %four : {BYTES}",
            ]
    return lines


def _block_pairs(block: int, encoding: Encoding, w: str) -> list[str]:
    """Makes ``%pairs<block>``, products of a block and of x, and with the first block of a group its integers."""
    count, begin = 2 * chunks_of_group(encoding.layout), BLOCK * (block % 2)
    name, order = f"_{block // 2}", listed(range(begin, begin + BLOCK))
    return [
        *([] if block % count else group_integers(encoding, "", block // count, w)),
        f"%w{block} = vector.shuffle %u{name}, %u{name} {order} : vector<64xi8>, vector<64xi8>",
        f"%pairs{block} = {byte_dot(f'%w{block}', f'%xq{block}')}",
    ]


def _sums_of_sixteen(columns: int, layout: BlockLayout, minus: str) -> list[str]:
    """Makes ``%minus``: minus the offset times the sums of x's sixteens, in the order of the scales."""
    lines = ["%from_sixteen = arith.muli %part, %c16 : index"]
    for block in range(_BLOCKS):
        lines += [
            f"%from{block} = arith.addi %from, %c{BLOCK * block} : index",
            f"%given{block} = vector.load %q[%from{block}] : memref<{columns}xi8>, {BYTES}",
            f"%given_pairs{block} = {byte_dot('%above', f'%given{block}')}",
            f"%fours{block} = {pair_dot(f'%given_pairs{block}', '%ones')}",
        ]
    for side in (0, 1):
        a, b, c, d = (f"%fours{4 * side + i}" for i in range(4))
        lines += [
            f"%eights{side}_0 = {neighbours_added(a, b)}",
            f"%eights{side}_1 = {neighbours_added(c, d)}",
            f"%sixteens{side} = {neighbours_added(f'%eights{side}_0', f'%eights{side}_1')}",
            f"%floats{side} = arith.sitofp %sixteens{side} : vector<8xi32> to {EIGHT}",
            f"%offsets{side} = arith.negf %floats{side} : {EIGHT}",
            f"%to{side} = arith.addi %from_sixteen, %c{8 * side} : index",
            f"vector.store %offsets{side}, %minus[%to{side}] : {minus}, {EIGHT}",
        ]
    return [
        scratch("minus", minus),
        f"%above = arith.constant dense<{layout.offset}> : {BYTES}",
        *for_parts(columns, BLOCK * _BLOCKS, lines),
    ]
