"""Parts of packed rows of W as integers of 16 bits and scales, for products of several tokens with AVX2.

Both lie on the stack: ``%rows`` has sixteen rows of integers, ``%scales`` those of their scales, a part each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
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
from run_iree.kernels._lanes_matmul import ROWS
from run_iree.kernels._packed_row import half, signed_block, unsigned_offset
from run_iree.kernels._text import LINE, Buffer, asked, largest_divisor, within

_PART: Final = 256  # columns of a part, at most
_PAD: Final = 16  # integers between rows, so that they do not lie a power of two apart
ROW_SCALES: Final = 16  # places that a row has for its part's scales
MINIMA: Final = 8  # the first of them that has a minimum


@dataclass(frozen=True, slots=True)
class PackedRows:
    """How a part of a row is unpacked.

    Attributes:
        columns: of a part.
        scaled: how many columns have a scale of their own.
        minima: whether there are minima, negative, from place ``MINIMA`` on.
        stored: bytes of a part.
        numbers: index constants that the lines need.
        before: lines ahead of all loops.
        lines: for row ``%r``, whose part begins at ``%at``.
    """

    columns: int
    scaled: int
    minima: bool
    stored: int
    numbers: Sequence[int]
    before: Sequence[str]
    lines: Sequence[str]

    @property
    def stride(self) -> int:
        """Integers from one row to the next."""
        return self.columns + _PAD

    @property
    def rows(self) -> str:
        """The type of ``%rows``."""
        return f"memref<{ROWS * self.stride}xi16>"


SCALES: Final = f"memref<{ROWS * ROW_SCALES}xf32>"
"""The type of ``%scales``, sixteen places for each row."""


def packed_rows(columns: int, encoding: Encoding, w: Buffer) -> PackedRows:
    """Of an encoding; ``columns`` are those of W."""
    ahead = ROWS * (columns // encoding.block) * encoding.block_bytes
    if encoding.block == BLOCK:
        return _of_blocks(columns, encoding, w, ahead)
    soon = range(ahead, ahead + encoding.block_bytes, LINE)
    rows = f"memref<{ROWS * (encoding.block + _PAD)}xi16>"
    begin = [
        f"%to = arith.muli %r, %c{encoding.block + _PAD} : index",
        f"%scales_to = arith.muli %r, %c{ROW_SCALES} : index",
        *asked("soon", "%at", w, soon, locality=2),
    ]
    numbers = (encoding.block + _PAD, ROW_SCALES, *soon)
    if encoding.name == "q4_k":
        before = (
            *Q4_K_BEFORE,
            f"%signs = arith.constant dense<{[1.0] * MINIMA + [-1.0] * (ROW_SCALES - MINIMA)}> : vector<16xf32>",
        )
        lines = [*begin, *_q4_k(w.memref, rows)]
        return PackedRows(encoding.block, BLOCK, True, encoding.block_bytes, (*numbers, *Q4_K_NUMBERS), before, lines)
    before = (*Q6_K_BEFORE, "%above = arith.constant dense<32> : vector<64xi8>")
    lines = [*begin, *_q6_k(w.memref, rows)]
    return PackedRows(encoding.block, BLOCK // 2, False, encoding.block_bytes, (*numbers, *Q6_K_NUMBERS), before, lines)


def _of_blocks(columns: int, encoding: Encoding, w: Buffer, ahead: int) -> PackedRows:
    blocks = largest_divisor(columns // BLOCK, _PART // BLOCK)
    stride = blocks * BLOCK + _PAD
    before = [
        "%nibble = arith.constant dense<15> : vector<16xi8>",
        "%four = arith.constant dense<4> : vector<16xi8>",
        f"%offset = arith.constant dense<{unsigned_offset(encoding)}> : vector<32xi8>",
    ]
    lines = [
        f"%to = arith.muli %r, %c{stride} : index",
        f"%scales_to = arith.muli %r, %c{ROW_SCALES} : index",
        f"scf.for %block = %c0 to %c{blocks} step %c1 {{",
        f"  %skip = arith.muli %block, %c{encoding.block_bytes} : index",
        "  %block_at = arith.addi %at, %skip : index",
        *within(asked("soon", "%block_at", w, [ahead], locality=2)),
        "  %q_at = arith.addi %block_at, %c2 : index",
        *within([*half("half", "%block_at", w.memref), *signed_block(encoding, "%q_at", "q", w.memref)]),
        "  %ones = arith.extf %half : vector<1xf16> to vector<1xf32>",
        "  %d = vector.extract %ones[0] : f32 from vector<1xf32>",
        "  %scale_at = arith.addi %scales_to, %block : index",
        f"  memref.store %d, %scales[%scale_at] : {SCALES}",
        "  %wide = arith.extsi %q : vector<32xi8> to vector<32xi16>",
        f"  %skipped = arith.muli %block, %c{BLOCK} : index",
        "  %place = arith.addi %to, %skipped : index",
        f"  vector.store %wide, %rows[%place] : memref<{ROWS * stride}xi16>, vector<32xi16>",
        "}",
    ]
    numbers = (1, 2, BLOCK, blocks, encoding.block_bytes, stride, ROW_SCALES, ahead)
    return PackedRows(blocks * BLOCK, BLOCK, False, blocks * encoding.block_bytes, numbers, before, lines)


def _q4_k(w: str, rows: str) -> list[str]:
    """Integers 0 to 15; the scales of eight blocks, then their minima."""
    lines = [
        *q4_k_scales("", w),
        "%signed = arith.mulf %scaled, %signs : vector<16xf32>",
        f"vector.store %signed, %scales[%scales_to] : {SCALES}, vector<16xf32>",
    ]
    for pair in range(4):
        lines += [*q4_k_integers("", pair, w), *_put(pair, f"%u_{pair}", "ui", rows)]
    return lines


def _q6_k(w: str, rows: str) -> list[str]:
    """Integers -32 to 31; the scales of sixteen halves of blocks."""
    lines = [*q6_k_scales("", w), f"vector.store %scaled, %scales[%scales_to] : {SCALES}, vector<16xf32>"]
    for side in range(2):
        lines += q6_k_integers("", side, w)
    for quarter in range(4):
        lines += [
            f"%signed{quarter} = arith.subi %u_{quarter}, %above : vector<64xi8>",
            *_put(quarter, f"%signed{quarter}", "si", rows),
        ]
    return lines


def _put(quarter: int, integers: str, sign: str, rows: str) -> list[str]:
    """A quarter of a super-block, vector<64xi8>, to its place; ``sign`` is ``si`` or ``ui``."""
    return [
        f"%pairs{quarter} = arith.ext{sign} {integers} : vector<64xi8> to vector<64xi16>",
        f"%skip{quarter} = arith.constant {64 * quarter} : index",
        f"%to{quarter} = arith.addi %to, %skip{quarter} : index",
        f"vector.store %pairs{quarter}, %rows[%to{quarter}] : {rows}, vector<64xi16>",
    ]
