"""What a product of several tokens with AVX2 reads of its tokens: f32, column by column, a tile of tokens together.

A tile is sixteen tokens, the last one may be eight; a token too many is a copy of the last one. What all tiles need of
a part of the columns lies together. Several products of one x share what is made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from compile_hlo.iree.kernels._text import Arrangement, Buffer, Kernel, constants, indented
from compile_hlo.iree.kernels._turn import turned
from lang_core import BLOCK

LANES: Final = 8
TILE: Final = 2 * LANES
EIGHT: Final = "vector<8xf32>"


@dataclass(frozen=True, slots=True)
class Tokens:
    """T, K, and how many columns a part has."""

    rows: int
    columns: int
    part: int

    @property
    def registers(self) -> int:
        """For all tokens of a column."""
        return -(-self.rows // LANES)

    @property
    def tiles(self) -> int:
        """Of sixteen tokens."""
        return self.registers // 2

    @property
    def rest(self) -> bool:
        """Whether there is a tile of eight."""
        return self.registers % 2 == 1

    @property
    def made(self) -> Buffer:
        """f32 [K / part, tiles, part, 16], but [part, 8] of a tile of eight."""
        return Buffer("x", self.columns * self.registers * LANES, "f32")


def arranged_wide(tokens: Tokens, kind: str) -> Arrangement:
    """Of x [T, K] of 16 bits."""
    x = Buffer("given", tokens.rows * tokens.columns, kind)

    def row(t: int) -> list[str]:
        return [
            f"%some{t} = vector.load %given[%at{t}] : {x.memref}, vector<8x{kind}>",
            f"%row{t} = arith.extf %some{t} : vector<8x{kind}> to {EIGHT}",
        ]

    return _arrangement(kind, tokens, (x,), row)


def arranged_blocks(tokens: Tokens) -> Arrangement:
    """Of q i8 [T, K], scale f32 and total i32 [T, K / 32]: integers times scales."""
    blocks = tokens.rows * tokens.columns // BLOCK
    q, scale = Buffer("q", tokens.rows * tokens.columns, "i8"), Buffer("scale", blocks, "f32")

    def row(t: int) -> list[str]:
        return [
            f"%some{t} = vector.load %q[%at{t}] : {q.memref}, vector<8xi8>",
            f"%wide{t} = arith.extsi %some{t} : vector<8xi8> to vector<8xi32>",
            f"%float{t} = arith.sitofp %wide{t} : vector<8xi32> to {EIGHT}",
            f"%block{t} = arith.divui %at{t}, %c{BLOCK} : index",
            f"%scale{t} = memref.load %scale[%block{t}] : {scale.memref}",
            f"%by{t} = vector.broadcast %scale{t} : f32 to {EIGHT}",
            f"%row{t} = arith.mulf %float{t}, %by{t} : {EIGHT}",
        ]

    return _arrangement("blocks", tokens, (q, scale, Buffer("total", blocks, "i32")), row)


def _arrangement(kind: str, tokens: Tokens, given: tuple[Buffer, ...], row: Callable[[int], list[str]]) -> Arrangement:
    """A workgroup for eight tokens; ``row`` makes ``%row<t>`` of the eight columns of a token from ``%at<t>`` on."""
    rows, columns, part, made = tokens.rows, tokens.columns, tokens.part, tokens.made
    lines = []
    for t in range(LANES):
        lines += [
            f"%number{t} = arith.addi %first, %c{t} : index",
            f"%token{t} = arith.minui %number{t}, %c{rows - 1} : index",
            f"%begin{t} = arith.muli %token{t}, %c{columns} : index",
            f"%at{t} = arith.addi %begin{t}, %column : index",
            *row(t),
        ]
    names, more = turned([f"%row{t}" for t in range(LANES)], (1, 2, 4), "f32", lanes=LANES)
    lines += more
    for i, name in enumerate(names):
        lines += [
            f"%skip{i} = arith.muli %c{i}, %width : index",
            f"%place{i} = arith.addi %made_at, %skip{i} : index",
            f"vector.store {name}, %x[%place{i}] : {made.memref}, {EIGHT}",
        ]
    numbers = [*range(1, LANES + 1), TILE, BLOCK, rows - 1, columns, part, tokens.registers * LANES, tokens.tiles]
    body = f"""\
{constants([*numbers, TILE * part])}
%first = arith.muli %workgroup, %c{LANES} : index
%tile = arith.divui %workgroup, %c2 : index
%odd = arith.remui %workgroup, %c2 : index
%half = arith.muli %odd, %c{LANES} : index
%full = arith.cmpi ult, %tile, %c{tokens.tiles} : index
%width = arith.select %full, %c{TILE}, %c{LANES} : index
%tile_skip = arith.muli %tile, %c{TILE * part} : index
%tile_at = arith.addi %tile_skip, %half : index
scf.for %column = %c0 to %c{columns} step %c{LANES} {{
  %in_part = arith.remui %column, %c{part} : index
  %part = arith.subi %column, %in_part : index
  %part_skip = arith.muli %part, %c{tokens.registers * LANES} : index
  %part_at = arith.addi %part_skip, %tile_at : index
  %column_skip = arith.muli %in_part, %width : index
  %made_at = arith.addi %part_at, %column_skip : index
{indented(lines, 2)}
}}
"""
    function = f"tokens.{kind}.{rows}x{columns}x{part}"
    return Arrangement(function, Kernel("tokens", (*given, made), tokens.registers, body))
