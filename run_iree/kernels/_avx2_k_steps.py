"""The steps of a matvec with AVX2 along rows of super-blocks: 256 columns at a time.

As with blocks of 32 a register has integers of two blocks, or of the two sub-blocks of one of Q6_K, so that eight sums
of products have two scales, which lie in the same places of a register's halves.
"""

from collections.abc import Sequence
from typing import Final

from lang_core import BLOCK, encoding_named
from run_iree.kernels._avx2 import byte_dot, neighbours_added, pair_dot
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
    minus_of_x,
    places_in_x,
    scales_of_x,
    summed,
)
from run_iree.kernels._k_row import (
    Q4_K_BEFORE,
    Q6_K_BEFORE,
    Q6_K_NUMBERS,
    q4_k_scales,
    q6_k_integers,
    q6_k_scales,
)
from run_iree.kernels._packed_matvec import Steps
from run_iree.kernels._text import listed, scratch

_BLOCKS: Final = 8
_PAIRS: Final = range(_BLOCKS // 2)
# Q6_K's scales: those of the first sub-blocks of four blocks, then those of the second.
_SUB_BLOCKS: Final = (0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)


def q4_k_steps(columns: int, w: str) -> Steps:
    """Of Q4_K, a weight of type ``w``; its minima meet the sums of x, which are made once for all rows."""
    q4_k, half, count = encoding_named("q4_k"), "vector<16xi8>", columns // BLOCK
    offsets = [
        f"%part_scales = vector.load %scale[%from_block] : memref<{count}xf32>, {EIGHT}",
        f"%part_sums = arith.mulf %float_totals, %part_scales : {EIGHT}",
        f"%offsets = arith.negf %part_sums : {EIGHT}",
    ]
    before = [
        *Q4_K_BEFORE,
        ONES,
        f"%nibble = arith.constant dense<15> : {BYTES}",
        f"%four = arith.constant dense<4> : {BYTES}",
        *arranged(columns, _BLOCKS, offsets),
    ]
    of_x = [*scales_of_x(columns, _BLOCKS), minus_of_x(columns, _BLOCKS)]
    of_row = [
        *q4_k_scales("", w),
        f"%w_scales = vector.shuffle %scaled, %scaled {listed(range(8))} : {SUMS}, {SUMS}",
        f"%minima = vector.shuffle %scaled, %scaled {listed(range(8, 16))} : {SUMS}, {SUMS}",
        f"%scales = arith.mulf %w_scales, %x_scales : {EIGHT}",
        *less_of_blocks("%minima", _BLOCKS),
    ]
    for chunk in (0, 1):  # and the one 64 bytes on, whose two blocks are four further
        for part in (0, 16):
            name, first = f"{chunk}_{part}", 16 + 32 * chunk + part
            of_row += [
                f"%first_at{name} = arith.addi %at, %c{first} : index",
                f"%second_at{name} = arith.addi %at, %c{first + 64} : index",
                f"%first{name} = vector.load %w[%first_at{name}] : {w}, {half}",
                f"%second{name} = vector.load %w[%second_at{name}] : {w}, {half}",
                f"%both{name} = vector.shuffle %first{name}, %second{name} {listed(range(32))} : {half}, {half}",
                f"%low{name} = arith.andi %both{name}, %nibble : {BYTES}",
                f"%high{name} = arith.shrui %both{name}, %four : {BYTES}",
            ]
    for pair in _PAIRS:
        side, chunk = ("low", "high")[pair % 2], pair // 2
        of_x += arranged_pair(pair, columns)
        of_row += [
            f"%first_pairs{pair} = {byte_dot(f'%{side}{chunk}_0', f'%x_low{pair}')}",
            f"%second_pairs{pair} = {byte_dot(f'%{side}{chunk}_16', f'%x_high{pair}')}",
            f"%pairs{pair} = arith.addi %first_pairs{pair}, %second_pairs{pair} : vector<16xi16>",
        ]
    of_row += summed([[pair] * 4 + [pair + 4] * 4 for pair in _PAIRS], EIGHT, "%sum", "%less")
    places = range(16, q4_k.block_bytes, 16)
    return Steps(q4_k.block, q4_k.block_bytes, (_BLOCKS, *places_in_x(_BLOCKS), *places), before, of_x, of_row)


def q6_k_steps(columns: int, w: str) -> Steps:
    """Of Q6_K, a weight of type ``w``, whose integers are 32 above their values."""
    q6_k, minus = encoding_named("q6_k"), f"memref<{columns // 16}xf32>"
    before = [*Q6_K_BEFORE, ONES, *_sums_of_sixteen(columns, minus)]
    twice = listed([*range(4), *range(4), *range(4, 8), *range(4, 8)])
    of_x = [
        *scales_of_x(columns, _BLOCKS),
        f"%both_x_scales = vector.shuffle %x_scales, %x_scales {twice} : {EIGHT}, {EIGHT}",
        "%x_minus_at = arith.muli %step, %c16 : index",
        f"%x_minus = vector.load %minus[%x_minus_at] : {minus}, {SUMS}",
    ]
    of_row = [
        *q6_k_scales("", w, _SUB_BLOCKS),
        f"%scales = arith.mulf %scaled, %both_x_scales : {SUMS}",
        f"%sum_less = math.fma %scales, %x_minus, %sum : {SUMS}",
    ]
    lanes: list[Sequence[int]] = []
    for block in range(_BLOCKS):
        name, begin = f"_{block // 2}", 32 * (block % 2)
        of_x += block_of_x(block, columns)
        if block % 4 == 0:
            of_row += q6_k_integers("", block // 4, w)
        order = listed(range(begin, begin + 32))
        of_row += [
            f"%w{block} = vector.shuffle %u{name}, %u{name} {order} : vector<64xi8>, vector<64xi8>",
            f"%pairs{block} = {byte_dot(f'%w{block}', f'%xq{block}')}",
        ]
        place = 8 * (block // 4) + block % 4
        lanes.append([place] * 4 + [place + 4] * 4)
    of_row += summed(lanes, SUMS, "%sum_less")
    numbers = (_BLOCKS, 16, *Q6_K_NUMBERS, *places_in_x(_BLOCKS))
    return Steps(q6_k.block, q6_k.block_bytes, numbers, before, of_x, of_row)


def _sums_of_sixteen(columns: int, minus: str) -> list[str]:
    """``%minus``: -32 times the sums of x's sixteens, in the order of the scales."""
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
        f"%above = arith.constant dense<32> : {BYTES}",
        *for_parts(columns, BLOCK * _BLOCKS, lines),
    ]
