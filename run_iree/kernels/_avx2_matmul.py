"""Y = X W^T of several tokens, W packed, for CPUs with AVX2: ``vpmaddwd`` multiplies and adds pairs of 16-bit integers.

A word is two neighbouring integers: a lane has that of its token, and a word of W is on all lanes. Products of columns
that share a scale are summed as i32 and scaled once.
"""

from functools import partial
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._avx2_parts import MINIMA, ROW_SCALES, SCALES, PackedRows, packed_rows
from run_iree.kernels._instruction_sets import pair_dot
from run_iree.kernels._lanes_matmul import (
    EIGHT,
    Products,
    lanes_matmul,
    registers,
    sums_loaded,
    sums_stored,
)
from run_iree.kernels._text import Buffer, CpuKernel, scratch, within
from run_iree.kernels._tokens import LANES, TILE, Tokens, arranged_pairs

NAME: Final = "avx2-matmul"
_ROWS_OF: Final = {TILE: (4, 4, 4, 4), LANES: (8, 8)}
_WORDS: Final = "vector<8xi32>"
_PAIRS: Final = "vector<16xi16>"


def fits_avx2_matmul(encoding: Encoding) -> bool:
    """Returns whether there is a kernel for the encoding: minima are those of blocks of 32."""
    return encoding.layout.minimum is None or encoding.layout.scaled == BLOCK


def avx2_matmul_kernel(rows: int, outputs: int, columns: int, encoding: Encoding, kind: str) -> CpuKernel:
    """Builds q i8 [rows, columns], scale f32, total i32 [rows, columns / 32], w [outputs, bytes]: y [rows, outputs].

    ``outputs`` is a multiple of 16; ``kind`` is the dtype of y.
    """
    w = Buffer("w", outputs * (columns // encoding.block) * encoding.block_bytes, "i8")
    parts = packed_rows(columns, encoding, w)
    blocks = parts.columns // BLOCK
    depth = parts.columns // 2 + blocks * (2 if parts.minima else 1)
    tokens = Tokens(rows, columns, parts.columns, depth, "i32")
    numbers = (*parts.numbers, 1, 2, TILE, LANES, parts.scaled, parts.scaled // 2, parts.columns // parts.scaled)
    before = (*parts.before, f"%zero = arith.constant dense<0> : {_WORDS}")
    before += (scratch("rows", parts.rows), scratch("scales", SCALES))
    products = Products(
        NAME,
        parts.stored,
        (*numbers, BLOCK // parts.scaled),
        before,
        parts.lines,
        _ROWS_OF,
        partial(_products, tokens, parts),
    )
    y = Buffer("y", rows * outputs, kind)
    return lanes_matmul(tokens, w, y, products, arranged_pairs(tokens, sums=parts.minima))


def _products(tokens: Tokens, parts: PackedRows, width: int, rows: range) -> list[str]:
    sums, words = registers(width, rows), parts.scaled // 2
    kinds = ", ".join([_WORDS] * len(sums))
    carried = ", ".join(f"%dot{r}_{half} = %zero" for r, half in sums)
    made = f"%made{rows.start}"
    return [
        f"scf.for %scaled = %c0 to %c{parts.columns // parts.scaled} step %c1 {{",
        f"  %first_word = arith.muli %scaled, %c{words} : index",
        f"  {made}:{len(sums)} = scf.for %in_block = %c0 to %c{words} step %c1 iter_args({carried}) -> ({kinds}) {{",
        "    %word = arith.addi %first_word, %in_block : index",
        "    %column = arith.muli %word, %c2 : index",
        f"    %x_skip = arith.muli %word, %c{width} : index",
        "    %x_at = arith.addi %x_first, %x_skip : index",
        *within(_word(tokens, parts, width, rows), 4),
        f"    scf.yield {', '.join(f'%next{r}_{half}' for r, half in sums)} : {kinds}",
        "  }",
        *within(_scaled(tokens, parts, width, rows, made)),
        "}",
    ]


def _word(tokens: Tokens, parts: PackedRows, width: int, rows: range) -> list[str]:
    """Multiplies word ``%word`` of the tile by that of each row; more words at once need too many registers."""
    lines = []
    for half in range(width // LANES):
        lines += _loaded("x", half, tokens, _PAIRS)
    for r in rows:
        lines += [
            f"%w_skip{r} = arith.constant {r * parts.stride} : index",
            f"%w_at{r} = arith.addi %column, %w_skip{r} : index",
            f"%pair{r} = vector.load %rows[%w_at{r}] : {parts.rows}, vector<2xi16>",
            f"%one{r} = vector.bitcast %pair{r} : vector<2xi16> to vector<1xi32>",
            f"%number{r} = vector.extract %one{r}[0] : i32 from vector<1xi32>",
            f"%all{r} = vector.broadcast %number{r} : i32 to {_WORDS}",
            f"%w{r} = vector.bitcast %all{r} : {_WORDS} to {_PAIRS}",
        ]
        for half in range(width // LANES):
            lines += [
                f"%product{r}_{half} = {pair_dot(f'%w{r}', f'%x{half}')}",
                f"%next{r}_{half} = arith.addi %dot{r}_{half}, %product{r}_{half} : {_WORDS}",
            ]
    return lines


def _loaded(name: str, half: int, tokens: Tokens, kind: str) -> list[str]:
    """Makes ``%<name><half>``, a register of the tile's words at ``%<name>_at``, cast to a type."""
    return [
        f"%{name}_half{half} = arith.constant {LANES * half} : index",
        f"%{name}_at{half} = arith.addi %{name}_at, %{name}_half{half} : index",
        f"%{name}_bits{half} = vector.load %x[%{name}_at{half}] : {tokens.made.memref}, {_WORDS}",
        f"%{name}{half} = vector.bitcast %{name}_bits{half} : {_WORDS} to {kind}",
    ]


def _scaled(tokens: Tokens, parts: PackedRows, width: int, rows: range, made: str) -> list[str]:
    """Adds integer sums, times the scales of x and W, less the minima times x's sums, to the sums."""
    sums = registers(width, rows)
    lines = [f"%block = arith.divui %scaled, %c{BLOCK // parts.scaled} : index"]
    for name, first in (("xs", parts.columns // 2), ("xt", parts.columns // 2 + parts.columns // BLOCK)):
        if name == "xt" and not parts.minima:
            continue
        lines += [
            f"%{name}_first = arith.constant {first} : index",
            f"%{name}_word = arith.addi %block, %{name}_first : index",
            f"%{name}_skip = arith.muli %{name}_word, %c{width} : index",
            f"%{name}_at = arith.addi %x_first, %{name}_skip : index",
        ]
        for half in range(width // LANES):
            lines += _loaded(name, half, tokens, EIGHT)
    for r in rows:
        lines += _spread("scale", r, 0)
        lines += _spread("minimum", r, MINIMA) if parts.minima else []
    for i, (r, half) in enumerate(sums):
        n = f"{r}_{half}"
        lines += [
            f"%float{n} = arith.sitofp {made}#{i} : {_WORDS} to {EIGHT}",
            f"%both{n} = arith.mulf %scale{r}, %xs{half} : {EIGHT}",
            sums_loaded(f"before{n}", r, half),
        ]
        before = f"%before{n}"
        if parts.minima:
            lines.append(f"%less{n} = math.fma %minimum{r}, %xt{half}, {before} : {EIGHT}")
            before = f"%less{n}"
        lines += [
            f"%after{n} = math.fma %float{n}, %both{n}, {before} : {EIGHT}",
            sums_stored(f"%after{n}", r, half),
        ]
    return lines


def _spread(name: str, r: int, place: int) -> list[str]:
    """Makes ``%<name><r>``, a row's scale or minimum on all lanes."""
    return [
        f"%{name}_skip{r} = arith.constant {ROW_SCALES * r + place} : index",
        f"%{name}_at{r} = arith.addi %scaled, %{name}_skip{r} : index",
        f"%{name}_one{r} = memref.load %scales[%{name}_at{r}] : {SCALES}",
        f"%{name}{r} = vector.broadcast %{name}_one{r} : f32 to {EIGHT}",
    ]
