"""What a product of several tokens with AVX2 reads of its tokens: f32, those of a tile beside each other.

So what the inner loop needs of them lies in one stream, and what all tiles need of a part of the columns together. In x
itself they are often a power of two apart, for which a cache has no room. Several products of one x share what is made.
"""

from collections.abc import Callable
from typing import Final

from compile_hlo.iree.kernels._text import Arrangement, Buffer, Kernel, constants, indented
from compile_hlo.iree.kernels._turn import turned
from lang_core import BLOCK

TOKENS: Final = 6  # of a tile: with sixteen rows of W that makes twelve sums, and there are sixteen registers
PLACES: Final = 8  # that a column of a tile has; what is in the last two does not matter
EIGHT: Final = "vector<8xf32>"


def tiles_of(rows: int) -> int:
    """How many tiles there are; the last may have fewer tokens."""
    return -(-rows // TOKENS)


def arranged_wide(rows: int, columns: int, part: int, kind: str) -> Arrangement:
    """Of x [rows, columns] of 16 bits: f32 [columns / part, tiles, part, 8]; ``part`` is a multiple of 8."""
    x = Buffer("x", rows * columns, kind)

    def row(t: int) -> list[str]:
        return [
            f"%given{t} = vector.load %x[%at{t}] : {x.memref}, vector<8x{kind}>",
            f"%row{t} = arith.extf %given{t} : vector<8x{kind}> to {EIGHT}",
        ]

    return _arrangement(f"tokens.{kind}.{rows}x{columns}x{part}", rows, columns, part, (x,), row)


def arranged_blocks(rows: int, columns: int, part: int) -> Arrangement:
    """Of q i8 [rows, columns], scale f32 and total i32 [rows, columns / 32]: their products, as above."""
    blocks = rows * columns // BLOCK
    q, scale, total = Buffer("q", rows * columns, "i8"), Buffer("scale", blocks, "f32"), Buffer("total", blocks, "i32")

    def row(t: int) -> list[str]:
        return [
            f"%given{t} = vector.load %q[%at{t}] : {q.memref}, vector<8xi8>",
            f"%wide{t} = arith.extsi %given{t} : vector<8xi8> to vector<8xi32>",
            f"%float{t} = arith.sitofp %wide{t} : vector<8xi32> to {EIGHT}",
            f"%block{t} = arith.divui %at{t}, %c{BLOCK} : index",
            f"%scale{t} = memref.load %scale[%block{t}] : {scale.memref}",
            f"%by{t} = vector.broadcast %scale{t} : f32 to {EIGHT}",
            f"%row{t} = arith.mulf %float{t}, %by{t} : {EIGHT}",
        ]

    return _arrangement(f"tokens.blocks.{rows}x{columns}x{part}", rows, columns, part, (q, scale, total), row)


def _arrangement(
    function: str, rows: int, columns: int, part: int, given: tuple[Buffer, ...], row: Callable[[int], list[str]]
) -> Arrangement:
    """A workgroup for each tile; ``row`` makes ``%row<t>`` of the eight columns of a token from ``%at<t>`` on."""
    made = Buffer("made", tiles_of(rows) * columns * PLACES, "f32")
    lines = []
    for t in range(TOKENS):
        lines += [
            f"%number{t} = arith.addi %first, %c{t} : index",
            f"%token{t} = arith.minui %number{t}, %c{rows - 1} : index",
            f"%begin{t} = arith.muli %token{t}, %c{columns} : index",
            f"%at{t} = arith.addi %begin{t}, %column : index",
            *row(t),
        ]
    names, more = turned([f"%row{min(t, TOKENS - 1)}" for t in range(PLACES)], (1, 2, 4), "f32", lanes=PLACES)
    lines += more
    for i, name in enumerate(names):
        lines += [
            f"%place{i} = arith.addi %made_at, %c{PLACES * i} : index",
            f"vector.store {name}, %made[%place{i}] : {made.memref}, {EIGHT}",
        ]
    numbers = [*range(1, TOKENS + 1), *(PLACES * i for i in range(PLACES)), BLOCK, rows - 1, columns, part]
    body = f"""\
{constants([*numbers, tiles_of(rows) * part])}
%first = arith.muli %workgroup, %c{TOKENS} : index
%tile = arith.muli %workgroup, %c{part} : index
scf.for %column = %c0 to %c{columns} step %c8 {{
  %number = arith.divui %column, %c{part} : index
  %in_part = arith.remui %column, %c{part} : index
  %part = arith.muli %number, %c{tiles_of(rows) * part} : index
  %part_tile = arith.addi %part, %tile : index
  %line = arith.addi %part_tile, %in_part : index
  %made_at = arith.muli %line, %c{PLACES} : index
{indented(lines, 2)}
}}
"""
    return Arrangement(function, Kernel("tokens", (*given, made), tiles_of(rows), body))
