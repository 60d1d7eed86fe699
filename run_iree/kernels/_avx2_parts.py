"""Parts of packed rows of W, unpacked to integers of 16 bits and scales, for products of several tokens with AVX2.

Both lie on the stack, a part of sixteen rows at a time: the integers in ``%rows``, the scales in ``%scales``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._lanes_matmul import ROWS
from run_iree.kernels._packed_row import block_minimum, block_scale, looked_up, signed_block, unsigned_offset
from run_iree.kernels._sub_scales import part_scales
from run_iree.kernels._super_block import (
    CHUNK,
    chunks_of_group,
    group_integers,
    super_block_constants,
    super_block_numbers,
)
from run_iree.kernels._text import LINE, Buffer, largest_divisor, listed, prefetches, within

_PART: Final = 256  # columns of a part, at most
_PAD: Final = 16  # integers between rows, so that they do not lie a power of two apart
ROW_SCALES: Final = 16  # places of a row in ``%scales``
MINIMA: Final = 8  # the first of them that holds a minimum


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Lines that unpack a part of a row.

    Attributes:
        columns: columns of a part.
        scaled: columns that share a scale.
        minima: whether there are minima, negated, from place ``MINIMA`` on.
        stored: bytes of a part.
        numbers: index constants that the lines need.
        before: lines ahead of all loops.
        lines: lines that unpack row ``%r``, whose part begins at ``%at``.
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
        """Type of ``%rows``."""
        return f"memref<{ROWS * self.stride}xi16>"


SCALES: Final = f"memref<{ROWS * ROW_SCALES}xf32>"
"""Type of ``%scales``, sixteen places for each row."""


def packed_rows(columns: int, encoding: Encoding, w: Buffer) -> PackedRows:
    """Returns how rows of W, with so many columns, are unpacked."""
    ahead = ROWS * (columns // encoding.block) * encoding.block_bytes
    return (_blocks if encoding.block == BLOCK else _super_blocks)(columns, encoding, w, ahead)


def _super_blocks(columns: int, encoding: Encoding, w: Buffer, ahead: int) -> PackedRows:
    """Returns parts of one super-block each: unsigned integers with minima, or signed ones without."""
    del columns
    layout, stride = encoding.layout, encoding.block + _PAD
    rows, soon = f"memref<{ROWS * stride}xi16>", range(ahead, ahead + encoding.block_bytes, LINE)
    minima = layout.minimum is not None
    lines = [
        f"%to = arith.muli %r, %c{stride} : index",
        f"%scales_to = arith.muli %r, %c{ROW_SCALES} : index",
        *prefetches("soon", "%at", w, soon, locality=2),
        *part_scales(encoding, "", w.memref),
    ]
    scales, before = "%scaled", super_block_constants(encoding)
    if minima:
        signs = listed([1.0] * MINIMA + [-1.0] * (ROW_SCALES - MINIMA))
        before.append(f"%signs = arith.constant dense<{signs}> : vector<16xf32>")
        lines.append("%signed = arith.mulf %scaled, %signs : vector<16xf32>")
        scales = "%signed"
    lines.append(f"vector.store {scales}, %scales[%scales_to] : {SCALES}, vector<16xf32>")
    if layout.offset:
        before.append(f"%above = arith.constant dense<{layout.offset}> : vector<64xi8>")
    count = chunks_of_group(layout)
    for chunk in range(encoding.block // CHUNK):
        lines += [] if chunk % count else group_integers(encoding, "", chunk // count, w.memref)
        integers = f"%u_{chunk}"
        if layout.offset:
            integers = f"%signed{chunk}"
            lines.append(f"{integers} = arith.subi %u_{chunk}, %above : vector<64xi8>")
        if layout.table is not None:
            integers = f"%signed{chunk}"
            lines += looked_up(layout.table, f"%u_{chunk}", f"signed{chunk}", CHUNK)
        lines += _put(chunk, integers, "si" if layout.offset or layout.table else "ui", rows)
    numbers = (stride, ROW_SCALES, *soon, *super_block_numbers(encoding))
    return PackedRows(encoding.block, layout.scaled, minima, encoding.block_bytes, numbers, before, lines)


def _blocks(columns: int, encoding: Encoding, w: Buffer, ahead: int) -> PackedRows:
    """Returns parts of several blocks of 32, of signed integers."""
    blocks = largest_divisor(columns // BLOCK, _PART // BLOCK)
    stride, minima = blocks * BLOCK + _PAD, encoding.layout.minimum is not None
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
        *within(prefetches("soon", "%block_at", w, [ahead], locality=2)),
        f"  %q_at = arith.addi %block_at, %c{encoding.layout.planes[0].at} : index",
        *within(block_scale(encoding, "%block_at", "d", w.memref)),
        *within(signed_block(encoding, "%block_at", "%q_at", "q", w.memref)),
        "  %scale_at = arith.addi %scales_to, %block : index",
        f"  memref.store %d, %scales[%scale_at] : {SCALES}",
        *within(_minimum(encoding, w) if minima else []),
        "  %wide = arith.extsi %q : vector<32xi8> to vector<32xi16>",
        f"  %skipped = arith.muli %block, %c{BLOCK} : index",
        "  %place = arith.addi %to, %skipped : index",
        f"  vector.store %wide, %rows[%place] : memref<{ROWS * stride}xi16>, vector<32xi16>",
        "}",
    ]
    numbers = (1, MINIMA, encoding.layout.planes[0].at, BLOCK, blocks, encoding.block_bytes, stride, ROW_SCALES, ahead)
    return PackedRows(blocks * BLOCK, BLOCK, minima, blocks * encoding.block_bytes, numbers, before, lines)


def _minimum(encoding: Encoding, w: Buffer) -> list[str]:
    """Stores the minimum of the block at ``%block_at``."""
    return [
        *block_minimum(encoding, "%block_at", "least", w.memref),
        f"%least_to = arith.addi %scale_at, %c{MINIMA} : index",
        f"memref.store %least, %scales[%least_to] : {SCALES}",
    ]


def _put(chunk: int, integers: str, sign: str, rows: str) -> list[str]:
    """Stores a chunk of a super-block, vector<64xi8>, to its place; ``sign`` is ``si`` or ``ui``."""
    return [
        f"%pairs{chunk} = arith.ext{sign} {integers} : vector<64xi8> to vector<64xi16>",
        f"%skip{chunk} = arith.constant {64 * chunk} : index",
        f"%to{chunk} = arith.addi %to, %skip{chunk} : index",
        f"vector.store %pairs{chunk}, %rows[%to{chunk}] : {rows}, vector<64xi16>",
    ]
