"""What a matvec with AVX2 does at each step along rows of blocks of 32: eight blocks at a time where they divide a row.

Integers of two blocks are multiplied at once, ``vpmaddubsw`` (unsigned by signed) and ``vpmaddwd`` sum them, and a
product with f32 scales follows. What is done for each weight counts: 61 instructions for eight blocks of Q4_0, 92 of
Q8_0. Scales are picked out of registers by blends: a load that lies in another one, the compiler makes of that one.
"""

from collections.abc import Iterable
from typing import Final

from compile_hlo.iree.kernels._avx2 import byte_dot, pair_dot, with_sign
from compile_hlo.iree.kernels._packed_matvec import Steps
from compile_hlo.iree.kernels._text import listed, scratch
from lang_core import BLOCK, encoding_named

_BYTES: Final = f"vector<{BLOCK}xi8>"
_HALF_BYTES: Final = f"vector<{BLOCK // 2}xi8>"
_EIGHT: Final = "vector<8xf32>"
_SUMS: Final = "vector<16xf32>"
_ONES: Final = "%ones = arith.constant dense<1> : vector<16xi16>"


def q4_0_steps(columns: int, w: str) -> Steps:
    """Of Q4_0, a weight of type ``w``: the low integers of two blocks fill a register, and the high ones another.

    x is arranged likewise, and its totals become the corrections for unsigned weights, once for all rows. Two blocks
    are half a step apart, so that their scales lie in the same places of a register's halves.
    """
    blocks, size = _blocks(columns), encoding_named("q4_0").block_bytes
    half, width, x = blocks // 2, blocks * BLOCK, f"memref<{columns}xi8>"
    few, minus = f"vector<{blocks}xf32>", f"memref<{columns // BLOCK}xf32>"
    before = [
        _ONES,
        f"%nibble = arith.constant dense<15> : {_BYTES}",
        f"%four = arith.constant dense<4> : {_BYTES}",
        f"%few_none = arith.constant dense<0.0> : {few}",
        *_arranged(columns, blocks),
    ]
    of_x = [*_scales_of_x(columns, blocks), f"%x_minus = vector.load %minus[%x_scales_at] : {minus}, {few}"]
    of_row = [
        *_integers(blocks, size, w, _HALF_BYTES),
        *_scales(_words_of_q4_0(blocks, w), blocks),
        f"%few_less = arith.mulf %scales, %x_minus : {few}",
        f"%less = vector.shuffle %few_less, %few_none {listed([min(i, blocks) for i in range(8)])} : {few}, {few}",
    ]
    for pair in range(half):
        for name, place in (("x_low", 2 * BLOCK * pair), ("x_high", 2 * BLOCK * pair + BLOCK)):
            of_x += [
                f"%{name}_at{pair} = arith.addi %x_at, %c{place} : index",
                f"%{name}{pair} = vector.load %arranged[%{name}_at{pair}] : {x}, {_BYTES}",
            ]
        both = listed(range(BLOCK))
        of_row += [
            f"%both{pair} = vector.shuffle %w{pair}, %w{pair + half} {both} : {_HALF_BYTES}, {_HALF_BYTES}",
            f"%low{pair} = arith.andi %both{pair}, %nibble : {_BYTES}",
            f"%high{pair} = arith.shrui %both{pair}, %four : {_BYTES}",
            f"%low_pairs{pair} = {byte_dot(f'%low{pair}', f'%x_low{pair}')}",
            f"%high_pairs{pair} = {byte_dot(f'%high{pair}', f'%x_high{pair}')}",
            f"%pairs{pair} = arith.addi %low_pairs{pair}, %high_pairs{pair} : vector<16xi16>",
        ]
    of_row += _summed([[pair] * 4 + [pair + half] * 4 for pair in range(half)], blocks, "%less")
    return Steps(width, blocks * size, _numbers(blocks, size), before, of_x, of_row)


def q8_0_steps(columns: int, w: str) -> Steps:
    """Of Q8_0, a weight of type ``w``: sizes of integers times x with their signs, so that -128 is what it is."""
    blocks, size = _blocks(columns), encoding_named("q8_0").block_bytes
    of_x = _scales_of_x(columns, blocks)
    of_row = [*_integers(blocks, size, w, _BYTES), *_scales(_words_of_q8_0(blocks, w), blocks)]
    for block in range(blocks):
        of_x += [
            f"%xq_at{block} = arith.addi %x_at, %c{BLOCK * block} : index",
            f"%xq{block} = vector.load %q[%xq_at{block}] : memref<{columns}xi8>, {_BYTES}",
        ]
        of_row += [
            f"%size{block} = math.absi %w{block} : {_BYTES}",
            f"%signed{block} = {with_sign(f'%xq{block}', f'%w{block}')}",
            f"%pairs{block} = {byte_dot(f'%size{block}', f'%signed{block}')}",
        ]
    of_row += _summed([[block] * 8 for block in range(blocks)], blocks, None)
    return Steps(blocks * BLOCK, blocks * size, _numbers(blocks, size), [_ONES], of_x, of_row)


def _blocks(columns: int) -> int:
    """Of a step."""
    return next(each for each in (8, 4, 2) if columns % (each * BLOCK) == 0)


def _numbers(blocks: int, size: int) -> list[int]:
    """Index constants: places in x and in ``%arranged``, and in a row's part."""
    return [blocks, *range(0, blocks * BLOCK + 1, BLOCK), *(size * block + 2 for block in range(blocks))]


def _arranged(columns: int, blocks: int) -> list[str]:
    """``%arranged``: x, of each pair of blocks the first halves, then the others; ``%minus``: -8 times its totals."""
    x, width = f"memref<{columns}xi8>", blocks * BLOCK
    total, minus = f"memref<{columns // BLOCK}xi32>", f"memref<{columns // BLOCK}xf32>"
    given, few = f"vector<{width}xi8>", f"vector<{blocks}xf32>"
    lines = [
        f"%given = vector.load %q[%from] : {x}, {given}",
        f"%from_block = arith.muli %part, %c{blocks} : index",
        f"%totals = vector.load %total[%from_block] : {total}, vector<{blocks}xi32>",
        f"%float_totals = arith.sitofp %totals : vector<{blocks}xi32> to {few}",
        f"%offsets = arith.mulf %float_totals, %below : {few}",
        f"vector.store %offsets, %minus[%from_block] : {minus}, {few}",
    ]
    for place in range(0, width, BLOCK):
        pair, first = place // (2 * BLOCK), place // BLOCK % 2 * (BLOCK // 2)
        order = [BLOCK * block + first + i for block in (pair, pair + blocks // 2) for i in range(BLOCK // 2)]
        lines += [
            f"%ordered{place} = vector.shuffle %given, %given {listed(order)} : {given}, {given}",
            f"%to{place} = arith.addi %from, %c{place} : index",
            f"vector.store %ordered{place}, %arranged[%to{place}] : {x}, {_BYTES}",
        ]
    return [
        scratch("arranged", x),
        scratch("minus", minus),
        f"%below = arith.constant dense<-8.0> : {few}",
        f"%parts = arith.constant {columns // width} : index",
        "%next_part = arith.constant 1 : index",
        "scf.for %part = %c0 to %parts step %next_part {",
        f"  %from = arith.muli %part, %c{width} : index",
        *(f"  {line}" for line in lines),
        "}",
    ]


def _scales_of_x(columns: int, blocks: int) -> list[str]:
    return [
        f"%x_scales_at = arith.muli %step, %c{blocks} : index",
        f"%x_scales = vector.load %scale[%x_scales_at] : memref<{columns // BLOCK}xf32>, vector<{blocks}xf32>",
    ]


def _integers(blocks: int, size: int, w: str, kind: str) -> list[str]:
    """``%w<block>``, as they are stored. They stand ahead of the scales, which are loaded with more around them."""
    lines = []
    for block in range(blocks):
        lines += [
            f"%at{block} = arith.addi %at, %c{size * block + 2} : index",
            f"%w{block} = vector.load %w[%at{block}] : {w}, {kind}",
        ]
    return lines


def _words_of_q4_0(blocks: int, w: str) -> list[str]:
    """``%halves``: words 0, 9, 18, ..: of each sixteen two, at 0, 2, .. and in the other eight at 1, 3, .."""
    kind = "vector<16xi16>"
    parts = [{2 * part, 2 * part + 1, 2 * part + 8, 2 * part + 9} for part in range(blocks // 2)]
    order = listed([block + 8 * (block % 2) for block in range(blocks)])
    return [
        *_picked(parts, 16, w),
        f"%halves = vector.shuffle %picked{len(parts) - 1}, %picked{len(parts) - 1} {order} : {kind}, {kind}",
    ]


def _words_of_q8_0(blocks: int, w: str) -> list[str]:
    """``%halves``: words 0, 17, 34, ..: of each sixteen one, at 0, 1, 2, .."""
    kind, last = "vector<8xi16>", f"%picked{blocks - 1}"
    return [
        *_picked([{part} for part in range(blocks)], 8, w),
        f"%halves = vector.shuffle {last}, {last} {listed(range(blocks))} : {kind}, {kind}",
    ]


def _picked(parts: list[set[int]], count: int, w: str) -> list[str]:
    """``%picked<last>``: of the first ``count`` words of each 32 bytes those in these places; in others is junk."""
    lines, kind = [], f"vector<{count}xi16>"
    for part, taken in enumerate(parts):
        name = f"%part{part}" if part else "%picked0"
        lines += [
            f"%part_at{part} = arith.addi %at, %c{32 * part} : index",
            f"%part_bytes{part} = vector.load %w[%part_at{part}] : {w}, vector<{2 * count}xi8>",
            f"{name} = vector.bitcast %part_bytes{part} : vector<{2 * count}xi8> to {kind}",
        ]
        if part:
            lanes = listed([lane + count * (lane in taken) for lane in range(count)])
            lines.append(f"%picked{part} = vector.shuffle %picked{part - 1}, {name} {lanes} : {kind}, {kind}")
    return lines


def _scales(words: Iterable[str], blocks: int) -> list[str]:
    """``%scales``: of each block its own, which these lines leave in ``%halves``, times that of x."""
    few = f"vector<{blocks}xf32>"
    return [
        *words,
        f"%f16 = vector.bitcast %halves : vector<{blocks}xi16> to vector<{blocks}xf16>",
        f"%w_scales = arith.extf %f16 : vector<{blocks}xf16> to {few}",
        f"%scales = arith.mulf %w_scales, %x_scales : {few}",
    ]


def _summed(lanes: list[list[int]], blocks: int, more: str | None) -> list[str]:
    """``%next`` of ``%sum``, two sums that do not wait for each other.

    Args:
        lanes: for each ``%pairs<i>`` vector<16xi16>, of which blocks its eight sums of two are.
        blocks: how many scales there are.
        more: to be added, vector<8xf32>.
    """
    sums, few = ["%first_sum", "%second_sum"], f"vector<{blocks}xf32>"
    lines = [
        f"%first_sum = vector.shuffle %sum, %sum {listed(range(8))} : {_SUMS}, {_SUMS}",
        f"%second_sum = vector.shuffle %sum, %sum {listed(range(8, 16))} : {_SUMS}, {_SUMS}",
    ]
    if more is not None:
        lines.append(f"%second_more = arith.addf {more}, %second_sum : {_EIGHT}")
        sums[1] = "%second_more"
    for i, each in enumerate(lanes):
        lines += [
            f"%dot{i} = {pair_dot(f'%pairs{i}', '%ones')}",
            f"%float{i} = arith.sitofp %dot{i} : vector<8xi32> to {_EIGHT}",
            f"%by{i} = vector.shuffle %scales, %scales {listed(each)} : {few}, {few}",
            f"%sum{i} = math.fma %float{i}, %by{i}, {sums[i % 2]} : {_EIGHT}",
        ]
        sums[i % 2] = f"%sum{i}"
    return [*lines, f"%next = vector.shuffle {sums[0]}, {sums[1]} {listed(range(16))} : {_EIGHT}, {_EIGHT}"]
