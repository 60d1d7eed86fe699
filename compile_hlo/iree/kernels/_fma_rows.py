"""Parts of rows of W as f32, for products of several tokens with AVX2: of 16 bits, of blocks, of super-blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compile_hlo.iree.kernels._k_row import (
    Q4_K_BEFORE,
    Q4_K_NUMBERS,
    Q6_K_BEFORE,
    Q6_K_NUMBERS,
    q4_k_integers,
    q4_k_scales,
    q6_k_integers,
    q6_k_scales,
)
from compile_hlo.iree.kernels._packed_row import half, signed_block, unsigned_offset
from compile_hlo.iree.kernels._text import Buffer, largest_divisor, listed
from lang_core import BLOCK, Encoding

ROWS: Final = 16  # of W, that lie in the scratch ``%rows`` at a time
_MOST: Final = 128  # columns of a part, but of super-blocks
_PAD: Final = 8  # elements between rows in the scratch, so that they do not lie a power of two apart


@dataclass(frozen=True, slots=True)
class RowParts:
    """How a part of a row is read.

    Attributes:
        columns: of a part.
        stored: elements of w's buffer in a part.
        numbers: index constants that the lines need.
        before: lines ahead of all loops.
        lines: what puts the part whose first stored element is ``%from`` to ``%to`` and on, in the scratch ``%rows``.
    """

    columns: int
    stored: int
    numbers: Sequence[int]
    before: Sequence[str]
    lines: Sequence[str]

    @property
    def stride(self) -> int:
        """Elements of the scratch for a row."""
        return self.columns + _PAD

    @property
    def rows(self) -> str:
        """The scratch's type."""
        return _rows(self.columns)


def _rows(columns: int) -> str:
    return f"memref<{ROWS * (columns + _PAD)}xf32>"


def wide_parts(columns: int, w: Buffer) -> RowParts:
    """Of bf16 and f16; ``columns`` are those of W, a multiple of 32."""
    part = BLOCK * largest_divisor(columns // BLOCK, _MOST // BLOCK)
    lines = [
        f"scf.for %column = %c0 to %c{part} step %c{BLOCK} {{",
        "  %at = arith.addi %from, %column : index",
        "  %soon = arith.addi %at, %ahead : index",
        f"  memref.prefetch %w[%soon], read, locality<2>, data : {w.memref}",
        f"  %given = vector.load %w[%at] : {w.memref}, vector<32x{w.kind}>",
        f"  %wide = arith.extf %given : vector<32x{w.kind}> to vector<32xf32>",
        "  %place = arith.addi %to, %column : index",
        f"  vector.store %wide, %rows[%place] : {_rows(part)}, vector<32xf32>",
        "}",
    ]
    return RowParts(part, part, (BLOCK,), (), lines)


def packed_parts(columns: int, encoding: Encoding, w: Buffer) -> RowParts:
    """Of an encoding."""
    match encoding.name:
        case "q4_k":
            return RowParts(encoding.block, encoding.block_bytes, Q4_K_NUMBERS, Q4_K_BEFORE, _q4_k(w))
        case "q6_k":
            before = (*Q6_K_BEFORE, "%above = arith.constant dense<32> : vector<64xi8>")
            return RowParts(encoding.block, encoding.block_bytes, Q6_K_NUMBERS, before, _q6_k(w))
        case _:
            return _block_parts(columns, encoding, w)


def _block_parts(columns: int, encoding: Encoding, w: Buffer) -> RowParts:
    blocks = largest_divisor(columns // BLOCK, _MOST // BLOCK)
    before = [
        "%nibble = arith.constant dense<15> : vector<16xi8>",
        "%four = arith.constant dense<4> : vector<16xi8>",
        f"%offset = arith.constant dense<{unsigned_offset(encoding)}> : vector<32xi8>",
    ]
    lines = [
        f"scf.for %block = %c0 to %c{blocks} step %c1 {{",
        f"  %skip = arith.muli %block, %c{encoding.block_bytes} : index",
        "  %at = arith.addi %from, %skip : index",
        "  %soon = arith.addi %at, %ahead : index",
        f"  memref.prefetch %w[%soon], read, locality<2>, data : {w.memref}",
        "  %q_at = arith.addi %at, %c2 : index",
        *(f"  {line}" for line in (*half("half", "%at", w.memref), *signed_block(encoding, "%q_at", "q", w.memref))),
        "  %one = arith.extf %half : vector<1xf16> to vector<1xf32>",
        f"  %d = vector.shuffle %one, %one {listed([0] * BLOCK)} : vector<1xf32>, vector<1xf32>",
        "  %wide = arith.extsi %q : vector<32xi8> to vector<32xi32>",
        "  %float = arith.sitofp %wide : vector<32xi32> to vector<32xf32>",
        "  %value = arith.mulf %float, %d : vector<32xf32>",
        f"  %skipped = arith.muli %block, %c{BLOCK} : index",
        "  %place = arith.addi %to, %skipped : index",
        f"  vector.store %value, %rows[%place] : {_rows(blocks * BLOCK)}, vector<32xf32>",
        "}",
    ]
    return RowParts(blocks * BLOCK, blocks * encoding.block_bytes, (1, 2, BLOCK, encoding.block_bytes), before, lines)


def _q4_k(w: Buffer) -> list[str]:
    """A super-block: ``(d * sc) * q - (dmin * m)``."""
    lines = ["%at0 = arith.addi %from, %c0 : index", *q4_k_scales(0, w.memref)]
    for pair in range(4):
        lines += q4_k_integers(0, pair, w.memref)
        for block in (2 * pair, 2 * pair + 1):
            lines += [
                *_floats(block, f"%u0_{pair}", 32 * (block % 2), 32, "ui"),
                *_spread(f"scale{block}", block, 32),
                *_spread(f"least{block}", 8 + block, 32),
                f"%product{block} = arith.mulf %w_float{block}, %scale{block} : vector<32xf32>",
                f"%value{block} = arith.subf %product{block}, %least{block} : vector<32xf32>",
                *_put(block, 32),
            ]
    return lines


def _q6_k(w: Buffer) -> list[str]:
    """A super-block: ``(d * sc) * (q - 32)``."""
    lines = ["%at0 = arith.addi %from, %c0 : index", *q6_k_scales(0, w.memref)]
    for side in range(2):
        lines += q6_k_integers(0, side, w.memref)
    for quarter in range(4):
        lines.append(f"%signed{quarter} = arith.subi %u0_{quarter}, %above : vector<64xi8>")
        for part in range(4 * quarter, 4 * quarter + 4):
            lines += [
                *_floats(part, f"%signed{quarter}", 16 * (part % 4), 16, "si"),
                *_spread(f"scale{part}", part, 16),
                f"%value{part} = arith.mulf %w_float{part}, %scale{part} : vector<16xf32>",
                *_put(part, 16),
            ]
    return lines


def _floats(number: int, integers: str, first: int, count: int, sign: str) -> list[str]:
    """``%w_float<number>``: of vector<64xi8>, so many from the first on; ``sign`` is ``si`` or ``ui``."""
    return [
        f"%some{number} = vector.shuffle {integers}, {integers} {listed(range(first, first + count))} : "
        "vector<64xi8>, vector<64xi8>",
        f"%w_wide{number} = arith.ext{sign} %some{number} : vector<{count}xi8> to vector<{count}xi32>",
        f"%w_float{number} = arith.sitofp %w_wide{number} : vector<{count}xi32> to vector<{count}xf32>",
    ]


def _spread(name: str, lane: int, count: int) -> list[str]:
    """``%<name>``: a lane of ``%scaled0`` on so many lanes."""
    return [f"%{name} = vector.shuffle %scaled0, %scaled0 {listed([lane] * count)} : vector<16xf32>, vector<16xf32>"]


def _put(number: int, count: int) -> list[str]:
    return [
        f"%skip{number} = arith.constant {number * count} : index",
        f"%place{number} = arith.addi %to, %skip{number} : index",
        f"vector.store %value{number}, %rows[%place{number}] : {_rows(256)}, vector<{count}xf32>",
    ]
