"""Tokens as products of several tokens with AVX2 read them: word by word, those of a tile beside each other.

A tile is sixteen tokens; the last one may be eight, padded with copies of the last token. Words of a part of columns
lie together for all tiles. Several products of the same x share the arrangement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK
from run_iree.kernels._text import Arrangement, Buffer, CpuKernel, constants, indented, listed, turned

LANES: Final = 8
TILE: Final = 2 * LANES
_FLOATS: Final = "vector<8xf32>"
_WORDS: Final = "vector<8xi32>"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sizes of arranged tokens.

    Attributes:
        rows: number of tokens, T.
        columns: number of columns, K.
        part: columns of a part.
        depth: words of a part for each token.
        kind: type of a word.
    """

    rows: int
    columns: int
    part: int
    depth: int
    kind: str

    @property
    def registers(self) -> int:
        """Registers of a word of all tokens."""
        return -(-self.rows // LANES)

    @property
    def tiles(self) -> int:
        """Number of tiles of sixteen tokens."""
        return self.registers // 2

    @property
    def rest(self) -> bool:
        """True if there is a tile of eight tokens."""
        return self.registers % 2 == 1

    @property
    def made(self) -> Buffer:
        """Buffer [K / part, tiles, depth, 16], with [depth, 8] for a tile of eight."""
        return Buffer("x", self.columns // self.part * self.depth * self.registers * LANES, self.kind)


def arranged_floats(tokens: Tokens, kind: str) -> Arrangement:
    """Arranges x [T, K] of 16 bits as f32."""
    x = Buffer("given", tokens.rows * tokens.columns, kind)
    lines = []
    for t in range(LANES):
        lines += [
            f"%at{t} = arith.addi %begin{t}, %column : index",
            f"%some{t} = vector.load %given[%at{t}] : {x.memref}, vector<8x{kind}>",
            f"%row{t} = arith.extf %some{t} : vector<8x{kind}> to {_FLOATS}",
        ]
    names, more = turned([f"%row{t}" for t in range(LANES)], (1, 2, 4), "f32", lanes=LANES)
    lines += [*more, *_puts(tokens, "word", "%in_part", names, _FLOATS)]
    return _arrangement(f"tokens.{kind}", tokens, (x,), LANES, lines)


def arranged_pairs(tokens: Tokens, *, sums: bool) -> Arrangement:
    """Arranges q i8 [T, K], scale f32 and total i32 [T, K / 32] as words.

    A part is pairs of i16, then the bits of f32: the scales of its blocks, and with ``sums`` scales times totals.
    """
    blocks = tokens.rows * tokens.columns // BLOCK
    q, scale = Buffer("q", tokens.rows * tokens.columns, "i8"), Buffer("scale", blocks, "f32")
    total = Buffer("total", blocks, "i32")
    lines, every = [], range(LANES)
    for t in every:
        lines += [
            f"%at{t} = arith.addi %begin{t}, %column : index",
            f"%some{t} = vector.load %q[%at{t}] : {q.memref}, vector<32xi8>",
            f"%wide{t} = arith.extsi %some{t} : vector<32xi8> to vector<32xi16>",
            f"%pairs{t} = vector.bitcast %wide{t} : vector<32xi16> to vector<16xi32>",
            f"%block{t} = arith.divui %at{t}, %c{BLOCK} : index",
            f"%scale{t} = memref.load %scale[%block{t}] : {scale.memref}",
        ]
        for half in range(2):
            lines.append(
                f"%row{half}_{t} = vector.shuffle %pairs{t}, %pairs{t} "
                f"{listed(range(LANES * half, LANES * half + LANES))} : vector<16xi32>, vector<16xi32>"
            )
    lines.append("%first_word = arith.divui %in_part, %c2 : index")
    for half in range(2):
        names, more = turned([f"%row{half}_{t}" for t in every], (1, 2, 4), "i32", prefix=f"turn{half}_", lanes=LANES)
        lines += [
            *more,
            f"%word{half} = arith.addi %first_word, %c{LANES * half} : index",
            *_puts(tokens, f"word{half}_", f"%word{half}", names, _WORDS),
        ]
    lines += [
        f"%of_part = arith.divui %in_part, %c{BLOCK} : index",
        f"%scale_word = arith.addi %of_part, %c{tokens.part // 2} : index",
        f"%scales = vector.from_elements {', '.join(f'%scale{t}' for t in every)} : {_FLOATS}",
        f"%scale_bits = vector.bitcast %scales : {_FLOATS} to {_WORDS}",
        *_puts(tokens, "scale", "%scale_word", ["%scale_bits"], _WORDS),
    ]
    if sums:
        lines += [f"%total{t} = memref.load %total[%block{t}] : {total.memref}" for t in every]
        lines += [
            f"%totals = vector.from_elements {', '.join(f'%total{t}' for t in every)} : {_WORDS}",
            f"%total_floats = arith.sitofp %totals : {_WORDS} to {_FLOATS}",
            f"%x_sums = arith.mulf %total_floats, %scales : {_FLOATS}",
            f"%sum_bits = vector.bitcast %x_sums : {_FLOATS} to {_WORDS}",
            f"%sum_word = arith.addi %scale_word, %c{tokens.part // BLOCK} : index",
            *_puts(tokens, "sum", "%sum_word", ["%sum_bits"], _WORDS),
        ]
    return _arrangement(f"tokens.{'sums' if sums else 'pairs'}", tokens, (q, scale, total), BLOCK, lines)


def _puts(tokens: Tokens, name: str, word: str, registers: Sequence[str], kind: str) -> list[str]:
    """Stores successive words, from ``word`` on, of the workgroup's eight tokens."""
    lines = [
        f"%{name}_skip = arith.muli {word}, %width : index",
        f"%{name}_at0 = arith.addi %part_at, %{name}_skip : index",
    ]
    for i, register in enumerate(registers):
        if i:
            lines.append(f"%{name}_at{i} = arith.addi %{name}_at{i - 1}, %width : index")
        lines.append(f"vector.store {register}, %x[%{name}_at{i}] : {tokens.made.memref}, {kind}")
    return lines


def _arrangement(
    function: str, tokens: Tokens, given: tuple[Buffer, ...], step: int, lines: Sequence[str]
) -> Arrangement:
    """Builds an arrangement, a workgroup for eight tokens; ``lines`` store ``step`` columns from ``%column`` on."""
    rows, columns, part, depth = tokens.rows, tokens.columns, tokens.part, tokens.depth
    begins = []
    for t in range(LANES):
        begins += [
            f"%number{t} = arith.addi %first, %c{t} : index",
            f"%token{t} = arith.minui %number{t}, %c{rows - 1} : index",
            f"%begin{t} = arith.muli %token{t}, %c{columns} : index",
        ]
    numbers = [*range(1, LANES + 1), TILE, BLOCK, step, rows - 1, columns, part, part // 2, part // BLOCK]
    numbers += [tokens.tiles, TILE * depth, depth * tokens.registers * LANES]
    body = f"""\
{constants(numbers)}
%first = arith.muli %workgroup, %c{LANES} : index
%tile = arith.divui %workgroup, %c2 : index
%odd = arith.remui %workgroup, %c2 : index
%half = arith.muli %odd, %c{LANES} : index
%full = arith.cmpi ult, %tile, %c{tokens.tiles} : index
%width = arith.select %full, %c{TILE}, %c{LANES} : index
%tile_skip = arith.muli %tile, %c{TILE * depth} : index
%tile_at = arith.addi %tile_skip, %half : index
{indented(begins, 0)}
scf.for %column = %c0 to %c{columns} step %c{step} {{
  %part = arith.divui %column, %c{part} : index
  %in_part = arith.remui %column, %c{part} : index
  %part_skip = arith.muli %part, %c{depth * tokens.registers * LANES} : index
  %part_at = arith.addi %part_skip, %tile_at : index
{indented(lines, 2)}
}}
"""
    name = f"{function}.{rows}x{columns}x{part}"
    return Arrangement(name, CpuKernel("tokens", (*given, tokens.made), tokens.registers, body))
