"""y = W x of one token for CPUs with AVX2, FMA and F16C; here what happens at each step along rows of blocks of 32.

Integers of two blocks are multiplied at once, ``vpmaddubsw`` (unsigned by signed) and ``vpmaddwd`` sum them, and a
product with f32 scales follows. The work per weight counts: 61 instructions for eight blocks of Q4_0, 92 of Q8_0.
Scales are picked out of registers by blends: the compiler makes a load that lies in another one out of that one.
"""

from collections.abc import Iterable
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._avx2_row import (
    BYTES,
    ONES,
    arranged,
    arranged_pair,
    block_of_x,
    less_of_blocks,
    minus_of_x,
    places_in_x,
    scales_of_x,
    summed,
)
from run_iree.kernels._avx2_super_block import super_block_steps
from run_iree.kernels._instruction_sets import byte_dot, with_sign
from run_iree.kernels._packed_matvec import Steps, packed_matvec
from run_iree.kernels._packed_row import has_plain_numbers, has_whole_integers, packed_buffers
from run_iree.kernels._text import CpuKernel, listed, wanted_workgroups

NAME: Final = "avx2-matvec"
# x in the order of nibbles takes 9 bytes of the stack for 8 columns, and a kernel may have 32 KiB.
_MOST_COLUMNS: Final = 28672
_HALF_BYTES: Final = f"vector<{BLOCK // 2}xi8>"


def fits_avx2_matvec(columns: int, encoding: Encoding) -> bool:
    """Returns whether there is a kernel for the encoding, rows are whole steps, and x fits the stack."""
    reads = has_plain_numbers(encoding) if encoding.block > BLOCK else has_whole_integers(encoding)
    return reads and columns % max(encoding.block, 2 * BLOCK) == 0 and columns <= _MOST_COLUMNS


def avx2_matvec_kernel(outputs: int, columns: int, encoding: Encoding, dtype: str, *, ahead: int) -> CpuKernel:
    """Builds q i8 [columns], scale f32, total i32 [columns / 32], w [outputs, bytes]: y [outputs].

    Args:
        outputs: rows of w.
        columns: columns of w; see ``fits_avx2_matvec``.
        encoding: encoding of w.
        dtype: dtype of y.
        ahead: prefetch distance in bytes.
    """
    buffers = packed_buffers(1, outputs, columns, encoding, dtype)
    w = buffers[3]
    make = super_block_steps if encoding.block > BLOCK else _nibble_steps if encoding.bits == 4 else _byte_steps
    steps = make(columns, encoding, w.memref)
    # Each workgroup has x to arrange: half as many are faster.
    return packed_matvec(NAME, buffers, steps, ahead=ahead, workgroups=wanted_workgroups(w.elements // 2))


def _nibble_steps(columns: int, encoding: Encoding, w: str) -> Steps:
    """Returns the steps along blocks of four bits: low integers of two blocks share a register, high ones another.

    x is arranged likewise, and its totals become the corrections for unsigned weights, once for all rows. Two blocks
    are half a step apart, so that their scales lie in the same places of a register's halves.
    """
    blocks, size = _blocks(columns), encoding.block_bytes
    half, few = blocks // 2, f"vector<{blocks}xf32>"
    before = [
        ONES,
        f"%nibble = arith.constant dense<15> : {BYTES}",
        f"%four = arith.constant dense<4> : {BYTES}",
        f"%below = arith.constant dense<{-float(encoding.layout.offset)}> : {few}",
        *arranged(columns, blocks, [f"%offsets = arith.mulf %float_totals, %below : {few}"]),
    ]
    of_x = [*scales_of_x(columns, blocks), minus_of_x(columns, blocks)]
    of_row = [
        *_integers(blocks, size, w, _HALF_BYTES),
        *_scales(_words_of_q4_0(blocks, w), blocks),
        *less_of_blocks("%scales", blocks),
    ]
    for pair in range(half):
        of_x += arranged_pair(pair, columns)
        both = listed(range(BLOCK))
        of_row += [
            f"%both{pair} = vector.shuffle %w{pair}, %w{pair + half} {both} : {_HALF_BYTES}, {_HALF_BYTES}",
            f"%low{pair} = arith.andi %both{pair}, %nibble : {BYTES}",
            f"%high{pair} = arith.shrui %both{pair}, %four : {BYTES}",
            f"%low_pairs{pair} = {byte_dot(f'%low{pair}', f'%x_low{pair}')}",
            f"%high_pairs{pair} = {byte_dot(f'%high{pair}', f'%x_high{pair}')}",
            f"%pairs{pair} = arith.addi %low_pairs{pair}, %high_pairs{pair} : vector<16xi16>",
        ]
    of_row += summed([[pair] * 4 + [pair + half] * 4 for pair in range(half)], few, "%sum", "%less")
    return Steps(blocks * BLOCK, blocks * size, _numbers(blocks, size), before, of_x, of_row)


def _byte_steps(columns: int, encoding: Encoding, w: str) -> Steps:
    """Returns the steps along blocks of signed bytes: their magnitudes times x with their signs, also of -128."""
    blocks, size = _blocks(columns), encoding.block_bytes
    of_x = scales_of_x(columns, blocks)
    of_row = [*_integers(blocks, size, w, BYTES), *_scales(_words_of_q8_0(blocks, w), blocks)]
    for block in range(blocks):
        of_x += block_of_x(block, columns)
        of_row += [
            f"%size{block} = math.absi %w{block} : {BYTES}",
            f"%signed{block} = {with_sign(f'%xq{block}', f'%w{block}')}",
            f"%pairs{block} = {byte_dot(f'%size{block}', f'%signed{block}')}",
        ]
    of_row += summed([[block] * 8 for block in range(blocks)], f"vector<{blocks}xf32>", "%sum")
    return Steps(blocks * BLOCK, blocks * size, _numbers(blocks, size), [ONES], of_x, of_row)


def _blocks(columns: int) -> int:
    """Returns how many blocks a step has."""
    return next(blocks for blocks in (8, 4, 2) if columns % (blocks * BLOCK) == 0)


def _numbers(blocks: int, size: int) -> list[int]:
    """Returns index constants: places in x and in a row's part."""
    return [blocks, *places_in_x(blocks), *(size * block + 2 for block in range(blocks))]


def _integers(blocks: int, size: int, w: str, kind: str) -> list[str]:
    """Makes ``%w<block>`` as stored. This goes ahead of the scales, whose loads overlap these."""
    lines = []
    for block in range(blocks):
        lines += [
            f"%at{block} = arith.addi %at, %c{size * block + 2} : index",
            f"%w{block} = vector.load %w[%at{block}] : {w}, {kind}",
        ]
    return lines


def _words_of_q4_0(blocks: int, w: str) -> list[str]:
    """Makes ``%halves`` of words 0, 9, 18, ..: of each sixteen two, at 0, 2, .. and in the other eight at 1, 3, .."""
    kind = "vector<16xi16>"
    parts = [{2 * part, 2 * part + 1, 2 * part + 8, 2 * part + 9} for part in range(blocks // 2)]
    order = listed([block + 8 * (block % 2) for block in range(blocks)])
    return [
        *_picked(parts, 16, w),
        f"%halves = vector.shuffle %picked{len(parts) - 1}, %picked{len(parts) - 1} {order} : {kind}, {kind}",
    ]


def _words_of_q8_0(blocks: int, w: str) -> list[str]:
    """Makes ``%halves`` of words 0, 17, 34, ..: of each sixteen one, at 0, 1, 2, .."""
    kind, last = "vector<8xi16>", f"%picked{blocks - 1}"
    return [
        *_picked([{part} for part in range(blocks)], 8, w),
        f"%halves = vector.shuffle {last}, {last} {listed(range(blocks))} : {kind}, {kind}",
    ]


def _picked(parts: list[set[int]], count: int, w: str) -> list[str]:
    """Makes ``%picked<last>``: of the first ``count`` words of each 32 bytes those in these places; others are junk."""
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
    """Makes ``%scales``: each block's own, which ``words`` leaves in ``%halves``, times that of x."""
    few = f"vector<{blocks}xf32>"
    return [
        *words,
        f"%f16 = vector.bitcast %halves : vector<{blocks}xi16> to vector<{blocks}xf16>",
        f"%w_scales = arith.extf %f16 : vector<{blocks}xf16> to {few}",
        f"%scales = arith.mulf %w_scales, %x_scales : {few}",
    ]
