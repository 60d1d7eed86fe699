"""What a matvec with VNNI does at each step along its rows; here for blocks of 32: a pair of them fills a register.

``vpdpbusd`` multiplies the 64 bytes and sums four at a time; a product with f32 scales follows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compile_hlo.iree.kernels._packed_row import half, unsigned_offset, unsigned_pair
from compile_hlo.iree.kernels._text import listed
from compile_hlo.iree.kernels._vnni import vnni_dot
from lang_core import BLOCK, Encoding


@dataclass(frozen=True, slots=True)
class Steps:
    """The inner loop.

    Attributes:
        width: columns of a step.
        row_bytes: of a row's part.
        numbers: index constants that its lines need.
        before: lines ahead of all loops.
        of_x: lines that load x from ``%x_at`` on.
        of_row: lines for row r, of a weight of this type, whose part begins at ``%at<r>``: ``%next<r>`` of ``%sum<r>``,
            both vector<16xf32>.
    """

    width: int
    row_bytes: int
    numbers: Sequence[int]
    before: Sequence[str]
    of_x: Sequence[str]
    of_row: Callable[[int, str], list[str]]


def pair_steps(columns: int, encoding: Encoding) -> Steps:
    """Of Q8_0 and Q4_0."""
    size, lanes = encoding.block_bytes, listed([0] * 8 + [1] * 8)
    before = [
        f"%flip = arith.constant dense<{unsigned_offset(encoding) - 256 * (encoding.bits == 8)}> : vector<64xi8>",
        "%nibble = arith.constant dense<15> : vector<32xi8>",
        "%four = arith.constant dense<4> : vector<32xi8>",
        "%zeros = arith.constant dense<0> : vector<16xi32>",
    ]
    of_x = [  # the integers, the scales on the lanes of each block, and the correction for unsigned weights
        f"%xq = vector.load %q[%x_at] : memref<{columns}xi8>, vector<64xi8>",
        "%scales_at = arith.muli %step, %c2 : index",
        f"%x_two = vector.load %scale[%scales_at] : memref<{columns // BLOCK}xf32>, vector<2xf32>",
        f"%x_scale = vector.shuffle %x_two, %x_two {lanes} : vector<2xf32>, vector<2xf32>",
        f"%offset = {vnni_dot('%zeros', '%flip', '%xq')}",
        "%minus = arith.subi %zeros, %offset : vector<16xi32>",
    ]

    def of_row(r: int, w: str) -> list[str]:
        lines = [
            f"%b{r} = arith.addi %at{r}, %c{size} : index",
            f"%a_q{r} = arith.addi %at{r}, %c2 : index",
            f"%b_q{r} = arith.addi %b{r}, %c2 : index",
            *unsigned_pair(encoding, f"%a_q{r}", f"%b_q{r}", f"wq{r}", w),
            f"%dot{r} = {vnni_dot('%minus', f'%wq{r}', '%xq')}",
            f"%float{r} = arith.sitofp %dot{r} : vector<16xi32> to vector<16xf32>",
            *half(f"a_half{r}", f"%at{r}", w),
            *half(f"b_half{r}", f"%b{r}", w),
        ]
        return [
            *lines,
            f"%halves{r} = vector.shuffle %a_half{r}, %b_half{r} {lanes} : vector<1xf16>, vector<1xf16>",
            f"%w_scale{r} = arith.extf %halves{r} : vector<16xf16> to vector<16xf32>",
            f"%both{r} = arith.mulf %w_scale{r}, %x_scale : vector<16xf32>",
            f"%next{r} = math.fma %float{r}, %both{r}, %sum{r} : vector<16xf32>",
        ]

    return Steps(2 * BLOCK, 2 * size, (2, size), before, of_x, of_row)
