"""The steps of a matvec with VNNI along rows of super-blocks: 256 columns at a time, in four registers.

Products are summed four at a time, so each lane has one scale: d times that of its sub-block, times that of its block
of x. Q4_K's minima meet the sums of x's integers, which come with x.
"""

from lang_core import BLOCK, encoding_named
from run_iree.kernels._k_row import (
    Q4_K_BEFORE,
    Q4_K_NUMBERS,
    Q6_K_BEFORE,
    Q6_K_NUMBERS,
    q4_k_integers,
    q4_k_scales,
    q6_k_integers,
    q6_k_scales,
)
from run_iree.kernels._packed_matvec import Steps
from run_iree.kernels._text import listed
from run_iree.kernels._vnni import vnni_dot

_ZEROS = "%zeros = arith.constant dense<0> : vector<16xi32>"
_CHUNKS = range(4)


def q4_k_steps(columns: int, w: str) -> Steps:
    """Of Q4_K, a weight of type ``w``."""
    q4_k, eight = encoding_named("q4_k"), "vector<8xf32>"
    before = [*Q4_K_BEFORE, _ZEROS, f"%k_none = arith.constant dense<0.0> : {eight}"]
    whole = listed(range(16))
    of_x = [
        *_x_lines(columns),
        f"%x_totals = vector.load %total[%x_scales_at] : memref<{columns // BLOCK}xi32>, vector<8xi32>",
        f"%x_sums = arith.sitofp %x_totals : vector<8xi32> to {eight}",
        f"%x_least = arith.mulf %x_sums, %xs : {eight}",
        f"%x_minus = arith.negf %x_least : {eight}",
        f"%x_scales = vector.shuffle %xs, %k_none {whole} : {eight}, {eight}",
        f"%x_minima = vector.shuffle %k_none, %x_minus {whole} : {eight}, {eight}",
    ]

    of_row = [
        *q4_k_scales("", w),
        "%factors = arith.mulf %scaled, %x_scales : vector<16xf32>",
        "%least = math.fma %scaled, %x_minima, %sum : vector<16xf32>",
    ]
    for chunk in _CHUNKS:
        of_row += q4_k_integers("", chunk, w)
        of_row += _added(chunk, "%least", "%zeros", [2 * chunk] * 8 + [2 * chunk + 1] * 8)
    return Steps(q4_k.block, q4_k.block_bytes, (8, *Q4_K_NUMBERS, 64, 128, 192), before, of_x, of_row)


def q6_k_steps(columns: int, w: str) -> Steps:
    """Of Q6_K, a weight of type ``w``, whose integers are 32 above their values."""
    q6_k = encoding_named("q6_k")
    before = [*Q6_K_BEFORE, _ZEROS, "%k_above = arith.constant dense<32> : vector<64xi8>"]
    twice = listed([each for block in range(8) for each in (block, block)])
    of_x = [*_x_lines(columns), f"%x_scales = vector.shuffle %xs, %xs {twice} : vector<8xf32>, vector<8xf32>"]
    for chunk in _CHUNKS:
        of_x += [
            f"%above{chunk} = {vnni_dot('%zeros', '%k_above', f'%xq{chunk}')}",
            f"%minus{chunk} = arith.subi %zeros, %above{chunk} : vector<16xi32>",
        ]

    of_row = [*q6_k_scales("", w), "%factors = arith.mulf %scaled, %x_scales : vector<16xf32>"]
    for chunk in _CHUNKS:
        if chunk % 2 == 0:
            of_row += q6_k_integers("", chunk // 2, w)
        of_row += _added(chunk, "%sum", f"%minus{chunk}", [4 * chunk + lane // 4 for lane in range(16)])
    return Steps(q6_k.block, q6_k.block_bytes, (8, *Q6_K_NUMBERS), before, of_x, of_row)


def _x_lines(columns: int) -> list[str]:
    """The integers ``%xq<chunk>``, and the scales ``%xs`` of the eight blocks."""
    lines = []
    for chunk in _CHUNKS:
        place = f"%x_at{chunk}" if chunk else "%x_at"
        if chunk:
            lines.append(f"{place} = arith.addi %x_at, %c{64 * chunk} : index")
        lines.append(f"%xq{chunk} = vector.load %q[{place}] : memref<{columns}xi8>, vector<64xi8>")
    return [
        *lines,
        "%x_scales_at = arith.muli %step, %c8 : index",
        f"%xs = vector.load %scale[%x_scales_at] : memref<{columns // BLOCK}xf32>, vector<8xf32>",
    ]


def _added(chunk: int, first: str, begin: str, lanes: list[int]) -> list[str]:
    """A register of the row times that of x, scaled and added to what was summed before."""
    before = f"%sum_{chunk - 1}" if chunk else first
    after = "%next" if chunk == _CHUNKS[-1] else f"%sum_{chunk}"
    return [
        f"%dot{chunk} = {vnni_dot(begin, f'%u_{chunk}', f'%xq{chunk}')}",
        f"%float{chunk} = arith.sitofp %dot{chunk} : vector<16xi32> to vector<16xf32>",
        f"%by{chunk} = vector.shuffle %factors, %factors {listed(lanes)} : vector<16xf32>, vector<16xf32>",
        f"{after} = math.fma %float{chunk}, %by{chunk}, {before} : vector<16xf32>",
    ]
