"""What a matvec with VNNI does at each step along its rows; here for blocks of 32, four at a time.

``vpdpbusd`` multiplies 64 bytes and sums four at a time; a product with f32 scales follows. What is done for each
weight counts: with 44 instructions for four blocks of Q4_0 two cores of an EPYC waited for arithmetic, with 22 they
wait for memory.
"""

from lang_core import BLOCK, Encoding
from run_iree.kernels._packed_matvec import Steps
from run_iree.kernels._packed_row import half, unsigned_offset, unsigned_pair
from run_iree.kernels._text import listed
from run_iree.kernels._vnni import vnni_dot


def block_steps(columns: int, encoding: Encoding, w: str) -> Steps:
    """Of Q8_0 and Q4_0, a weight of type ``w``: four blocks at a time, or two where they do not divide a row."""
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
    """``%scales``, f32 of each block: its own times that of x. And ``%q<block>``, where its integers are."""
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
    """``%xq<pair>``, and ``%begin<pair>``: the corrections, each on one lane of its block."""
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
    """A register of integers per pair of blocks, eight lanes for each."""
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
    """``%x_low`` and ``%x_high``: the first sixteen of each of four blocks, and the others."""
    low = [32 * block + i for block in range(4) for i in range(16)]
    corrections = listed([each for block in range(4) for each in (block, 4, 4, 4)])
    return [
        f"%xa = vector.load %q[%x_at] : memref<{columns}xi8>, vector<64xi8>",
        f"%x_at1 = arith.addi %x_at, %c{2 * BLOCK} : index",
        f"%xb = vector.load %q[%x_at1] : memref<{columns}xi8>, vector<64xi8>",
        f"%x_low = vector.shuffle %xa, %xb {listed(low)} : vector<64xi8>, vector<64xi8>",
        f"%x_high = vector.shuffle %xa, %xb {listed([i + 16 for i in low])} : vector<64xi8>, vector<64xi8>",
        f"%begin_dot = vector.shuffle %minus, %few_zeros {corrections} : vector<4xi32>, vector<4xi32>",
    ]


def _quad_of_row(w: str) -> list[str]:
    """The low nibbles of four blocks in one register, the high ones in another: four lanes for each block.

    What is needed is picked from two registers that hold all 72 bytes: scales are words 0, 9, 18 and 27.
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
