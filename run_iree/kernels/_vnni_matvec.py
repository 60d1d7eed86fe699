"""y = W x of one token for CPUs with AVX-512 VNNI: what happens at each step along a row.

``vpdpbusd`` multiplies 64 bytes and sums four at a time; a product with f32 scales follows. The work per weight counts:
with 44 instructions for four blocks of Q4_0 two cores of an EPYC waited for arithmetic, with 22 they wait for memory.
"""

from typing import Final

from lang_core import BLOCK, BlockLayout, Encoding
from run_iree.kernels._instruction_sets import vnni_dot
from run_iree.kernels._packed_matvec import Steps, packed_matvec
from run_iree.kernels._packed_row import (
    half,
    has_plain_numbers,
    has_whole_integers,
    packed_buffers,
    unsigned_offset,
    unsigned_pair,
)
from run_iree.kernels._sub_scales import part_scales
from run_iree.kernels._super_block import (
    CHUNK,
    chunks_of_group,
    group_integers,
    super_block_constants,
    super_block_numbers,
)
from run_iree.kernels._text import CpuKernel, listed, wanted_workgroups

NAME: Final = "avx512-vnni-matvec"
_ZEROS: Final = "%zeros = arith.constant dense<0> : vector<16xi32>"


def fits_vnni_matvec(columns: int, encoding: Encoding) -> bool:
    """Returns whether there is a kernel for the encoding, and rows of so many columns are whole steps."""
    reads = has_plain_numbers(encoding) if encoding.block > BLOCK else has_whole_integers(encoding)
    return reads and columns % max(encoding.block, 2 * BLOCK) == 0


def vnni_matvec_kernel(outputs: int, columns: int, encoding: Encoding, dtype: str, *, ahead: int) -> CpuKernel:
    """Builds q i8 [columns], scale f32, total i32 [columns / 32], w [outputs, bytes]: y [outputs].

    Args:
        outputs: rows of w.
        columns: columns of w; see ``fits_vnni_matvec``.
        encoding: encoding of w.
        dtype: dtype of y.
        ahead: prefetch distance in bytes; 0 for none.
    """
    buffers = packed_buffers(1, outputs, columns, encoding, dtype)
    w = buffers[3]
    make = block_steps if encoding.block == BLOCK else super_block_steps
    steps = make(columns, encoding, w.memref)
    return packed_matvec(NAME, buffers, steps, ahead=ahead, workgroups=wanted_workgroups(w.elements))


def block_steps(columns: int, encoding: Encoding, w: str) -> Steps:
    """Returns the steps along blocks of 32, of a weight of type ``w``: four at a time, or two at a time."""
    blocks = 2 if columns % (4 * BLOCK) else 4
    if blocks == 4 and encoding.bits == 4:
        integers_of_x, of_row = _quad_of_x(columns), _quad_of_row(w)
    else:
        integers_of_x, of_row = _pairs_of_x(columns, blocks), _pairs_of_row(blocks, encoding, w)
    few = f"vector<{blocks}xi32>"
    before = [
        f"%flip = arith.constant dense<{unsigned_offset(encoding) - 256 * (encoding.bits == 8)}> : vector<64xi8>",
        "%nibble = arith.constant dense<15> : vector<32xi8>",
        "%four = arith.constant dense<4> : vector<32xi8>",
        "%nibbles = arith.constant dense<15> : vector<64xi8>",
        "%fours = arith.constant dense<4> : vector<64xi8>",
        f"%few_zeros = arith.constant dense<0> : {few}",
        f"%above = arith.constant dense<{encoding.bits - 1}> : {few}",
    ]
    of_x = [  # the scales, the correction for unsigned weights, and the integers
        f"%x_scales_at = arith.muli %step, %c{blocks} : index",
        f"%x_scales = vector.load %scale[%x_scales_at] : memref<{columns // BLOCK}xf32>, vector<{blocks}xf32>",
        f"%totals = vector.load %total[%x_scales_at] : memref<{columns // BLOCK}xi32>, {few}",
        f"%offsets = arith.shli %totals, %above : {few}",
        f"%minus = arith.subi %few_zeros, %offsets : {few}",
        *integers_of_x,
    ]
    size = encoding.block_bytes
    numbers = [2 * BLOCK, blocks, 8, *(size * block + skip for block in range(blocks) for skip in (0, 2))]
    return Steps(
        blocks * BLOCK,
        blocks * size,
        numbers,
        before,
        of_x,
        of_row,
    )


def _scales(blocks: int, encoding: Encoding, w: str) -> list[str]:
    """Makes ``%scales``, each block's own times that of x, and ``%q<block>``, where its integers are."""
    size, few, lines = encoding.block_bytes, f"vector<{blocks}xf32>", []
    for block in range(blocks):
        name = str(block)
        lines += [
            f"%block{name} = arith.addi %at, %c{size * block} : index",
            f"%q{name} = arith.addi %at, %c{size * block + 2} : index",
            *half(f"half{name}", f"%block{name}", w),
            f"%one{name} = vector.extract %half{name}[0] : f16 from vector<1xf16>",
        ]
    halves = ", ".join(f"%one{block}" for block in range(blocks))
    return [
        *lines,
        f"%halves = vector.from_elements {halves} : vector<{blocks}xf16>",
        f"%w_scales = arith.extf %halves : vector<{blocks}xf16> to {few}",
        f"%scales = arith.mulf %w_scales, %x_scales : {few}",
    ]


def _pairs_of_x(columns: int, blocks: int) -> list[str]:
    """Makes ``%xq<pair>`` and ``%begin_dot<pair>``: the corrections, each on one lane of its block."""
    few, lines = f"vector<{blocks}xi32>", []
    for pair in range(blocks // 2):
        lanes = listed([2 * pair, *[blocks] * 7, 2 * pair + 1, *[blocks] * 7])
        place = f"%x_at{pair}" if pair else "%x_at"
        lines += [f"{place} = arith.addi %x_at, %c{2 * BLOCK} : index"] if pair else []
        lines += [
            f"%xq{pair} = vector.load %q[{place}] : memref<{columns}xi8>, vector<64xi8>",
            f"%begin_dot{pair} = vector.shuffle %minus, %few_zeros {lanes} : {few}, {few}",
        ]
    return lines


def _pairs_of_row(blocks: int, encoding: Encoding, w: str) -> list[str]:
    """Makes ``%next`` with a register of integers per pair of blocks, eight lanes for each."""
    lines, few = _scales(blocks, encoding, w), f"vector<{blocks}xf32>"
    for pair in range(blocks // 2):
        name, before = f"_p{pair}", f"%next_p{pair - 1}" if pair else "%sum"
        after = "%next" if 2 * pair == blocks - 2 else f"%next{name}"
        lanes = listed([2 * pair] * 8 + [2 * pair + 1] * 8)
        lines += [
            *unsigned_pair(encoding, f"%q{2 * pair}", f"%q{2 * pair + 1}", f"wq{name}", w),
            f"%dot{name} = {vnni_dot(f'%begin_dot{pair}', f'%wq{name}', f'%xq{pair}')}",
            f"%float{name} = arith.sitofp %dot{name} : vector<16xi32> to vector<16xf32>",
            f"%by{name} = vector.shuffle %scales, %scales {lanes} : {few}, {few}",
            f"{after} = math.fma %float{name}, %by{name}, {before} : vector<16xf32>",
        ]
    return lines


def _quad_of_x(columns: int) -> list[str]:
    """Makes ``%x_low`` and ``%x_high``: the first sixteen of each of four blocks, and the others."""
    low = [32 * block + i for block in range(4) for i in range(16)]
    corrections = listed([lane for block in range(4) for lane in (block, 4, 4, 4)])
    return [
        f"%xa = vector.load %q[%x_at] : memref<{columns}xi8>, vector<64xi8>",
        f"%x_at1 = arith.addi %x_at, %c{2 * BLOCK} : index",
        f"%xb = vector.load %q[%x_at1] : memref<{columns}xi8>, vector<64xi8>",
        f"%x_low = vector.shuffle %xa, %xb {listed(low)} : vector<64xi8>, vector<64xi8>",
        f"%x_high = vector.shuffle %xa, %xb {listed([i + 16 for i in low])} : vector<64xi8>, vector<64xi8>",
        f"%begin_dot = vector.shuffle %minus, %few_zeros {corrections} : vector<4xi32>, vector<4xi32>",
    ]


def _quad_of_row(w: str) -> list[str]:
    """Makes ``%next`` with the low nibbles of four blocks in one register, the high ones in another.

    Each block has four lanes. Two registers hold the 72 bytes, of which words 0, 9, 18 and 27 are the scales.
    """
    words = [9 * block + 1 + i for block in range(3) for i in range(8)] + [32 + 24 + i for i in range(8)]
    lanes = listed([block for block in range(4) for _ in range(4)])
    lines = ["%tail_at = arith.addi %at, %c8 : index"]
    for name, place in (("head", "%at"), ("tail", "%tail_at")):
        lines += [
            f"%{name}_bytes = vector.load %w[{place}] : {w}, vector<64xi8>",
            f"%{name} = vector.bitcast %{name}_bytes : vector<64xi8> to vector<32xi16>",
        ]
    return [
        *lines,
        "%halves = vector.shuffle %head, %head [0, 9, 18, 27] : vector<32xi16>, vector<32xi16>",
        "%f16 = vector.bitcast %halves : vector<4xi16> to vector<4xf16>",
        "%w_scales = arith.extf %f16 : vector<4xf16> to vector<4xf32>",
        "%scales = arith.mulf %w_scales, %x_scales : vector<4xf32>",
        f"%both = vector.shuffle %head, %tail {listed(words)} : vector<32xi16>, vector<32xi16>",
        "%quad = vector.bitcast %both : vector<32xi16> to vector<64xi8>",
        "%low = arith.andi %quad, %nibbles : vector<64xi8>",
        "%high = arith.shrui %quad, %fours : vector<64xi8>",
        f"%dot = {vnni_dot('%begin_dot', '%low', '%x_low')}",
        f"%dots = {vnni_dot('%dot', '%high', '%x_high')}",
        "%float = arith.sitofp %dots : vector<16xi32> to vector<16xf32>",
        f"%by = vector.shuffle %scales, %scales {lanes} : vector<4xf32>, vector<4xf32>",
        "%next = math.fma %float, %by, %sum : vector<16xf32>",
    ]


def super_block_steps(columns: int, encoding: Encoding, w: str) -> Steps:
    """Returns the steps along super-blocks, of a weight of type ``w``: 256 columns at a time, in four registers.

    Products are summed four at a time, so each lane has one scale: that of its part, times that of its block of x.
    Minima meet the sums of x's integers, which come with x; an offset is taken out where the sum of a register begins.
    """
    layout = encoding.layout
    before = [*super_block_constants(encoding), _ZEROS]
    of_x, first = _integers_of_x(columns, encoding), "%sum"
    of_row = part_scales(encoding, "", w)
    if layout.minimum is not None:
        before.append("%k_none = arith.constant dense<0.0> : vector<8xf32>")
        of_x += _minima_of_x(columns)
    else:
        parts = BLOCK // layout.scaled
        spread = listed([block for block in range(16 // parts) for _ in range(parts)])
        of_x.append(f"%x_scales = vector.shuffle %xs, %xs {spread} : vector<8xf32>, vector<8xf32>")
    of_row.append("%factors = arith.mulf %scaled, %x_scales : vector<16xf32>")
    if layout.minimum is not None:
        of_row.append("%least = math.fma %scaled, %x_minima, %sum : vector<16xf32>")
        first = "%least"
    if layout.offset:
        before.append(f"%k_above = arith.constant dense<{layout.offset}> : vector<64xi8>")
        of_x += _offsets_of_x(encoding)
    for chunk in range(encoding.block // CHUNK):
        if chunk % chunks_of_group(layout) == 0:
            of_row += group_integers(encoding, "", chunk // chunks_of_group(layout), w)
        of_row += _chunk_added(chunk, layout, first)
    numbers = (8, *super_block_numbers(encoding), *range(CHUNK, encoding.block, CHUNK))
    return Steps(encoding.block, encoding.block_bytes, numbers, before, of_x, of_row)


def _integers_of_x(columns: int, encoding: Encoding) -> list[str]:
    """Makes the integers ``%xq<chunk>``, and the scales ``%xs`` of the eight blocks."""
    lines = []
    for chunk in range(encoding.block // CHUNK):
        place = f"%x_at{chunk}" if chunk else "%x_at"
        lines += [f"{place} = arith.addi %x_at, %c{CHUNK * chunk} : index"] if chunk else []
        lines.append(f"%xq{chunk} = vector.load %q[{place}] : memref<{columns}xi8>, vector<64xi8>")
    return [
        *lines,
        "%x_scales_at = arith.muli %step, %c8 : index",
        f"%xs = vector.load %scale[%x_scales_at] : memref<{columns // BLOCK}xf32>, vector<8xf32>",
    ]


def _minima_of_x(columns: int) -> list[str]:
    """Makes ``%x_scales``, for the lanes of scales, and ``%x_minima``, minus the sums of x, for those of minima."""
    eight, whole = "vector<8xf32>", listed(range(16))
    return [
        f"%x_totals = vector.load %total[%x_scales_at] : memref<{columns // BLOCK}xi32>, vector<8xi32>",
        f"%x_sums = arith.sitofp %x_totals : vector<8xi32> to {eight}",
        f"%x_least = arith.mulf %x_sums, %xs : {eight}",
        f"%x_minus = arith.negf %x_least : {eight}",
        f"%x_scales = vector.shuffle %xs, %k_none {whole} : {eight}, {eight}",
        f"%x_minima = vector.shuffle %k_none, %x_minus {whole} : {eight}, {eight}",
    ]


def _offsets_of_x(encoding: Encoding) -> list[str]:
    """Makes ``%minus<chunk>``: minus the sums of x's integers, times the offset of the weights."""
    lines = []
    for chunk in range(encoding.block // CHUNK):
        lines += [
            f"%above{chunk} = {vnni_dot('%zeros', '%k_above', f'%xq{chunk}')}",
            f"%minus{chunk} = arith.subi %zeros, %above{chunk} : vector<16xi32>",
        ]
    return lines


def _chunk_added(chunk: int, layout: BlockLayout, first: str) -> list[str]:
    """Makes ``%sum_<chunk>``, or ``%next`` of the last one: a register of the row times that of x, scaled and added."""
    lanes = [(CHUNK * chunk + 4 * lane) // layout.scaled for lane in range(16)]
    before = f"%sum_{chunk - 1}" if chunk else first
    after = "%next" if CHUNK * (chunk + 1) == layout.size else f"%sum_{chunk}"
    begin = f"%minus{chunk}" if layout.offset else "%zeros"
    return [
        f"%dot{chunk} = {vnni_dot(begin, f'%u_{chunk}', f'%xq{chunk}')}",
        f"%float{chunk} = arith.sitofp %dot{chunk} : vector<16xi32> to vector<16xf32>",
        f"%by{chunk} = vector.shuffle %factors, %factors {listed(lanes)} : vector<16xf32>, vector<16xf32>",
        f"{after} = math.fma %float{chunk}, %by{chunk}, {before} : vector<16xf32>",
    ]
