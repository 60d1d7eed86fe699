"""Y = X W^T of several tokens, W packed, in integers: pairs of 16 bits are multiplied, and added to sums of 32 bits.

A word is two neighbouring integers: a lane has that of its token, and a word of W is on all lanes. Products of columns
that share a scale are summed as i32 and scaled once: 32 products of 8 and 16 bits fit.
"""

from functools import partial
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._arrange import arranged_pairs
from run_iree.kernels._instruction_sets import pair_dot, pairs_added
from run_iree.kernels._lanes_matmul import Products, lanes_matmul, sum_registers, sums_loaded, sums_stored
from run_iree.kernels._packed_parts import ROW_SCALES, SCALES, PackedRows, packed_rows
from run_iree.kernels._text import Buffer, CpuKernel, within
from run_iree.kernels._tokens import Tokens

_NAMES: Final = {8: "avx2-matmul", 16: "avx512-vnni-matmul"}
_AT_ONCE: Final = {8: 1, 16: 2}  # words in the body of the inner loop, by lanes: of more, sums need too many registers
_ROWS_OF: Final = {8: {2: (4, 4, 4, 4), 1: (8, 8)}, 16: {2: (8, 8), 1: (16,)}}


def pairs_matmul_kernel(
    sizes: tuple[int, int, int], encoding: Encoding, kind: str, *, planes: int, lanes: int
) -> CpuKernel:
    """Builds q i8 [T, planes, K], scale f32, total i32 [T, K / 32], w [N, bytes]: y [T, N].

    Args:
        sizes: T, N, K; N is a multiple of 16.
        encoding: encoding of w.
        kind: dtype of y.
        planes: planes of 8 bits of x's integers.
        lanes: lanes of a register: 8 for AVX2, 16 for AVX-512 VNNI.
    """
    rows, outputs, columns = sizes
    w = Buffer("w", outputs * (columns // encoding.block) * encoding.block_bytes, "i8")
    parts = packed_rows(columns, encoding, w, "i16")
    sums = parts.columns // parts.scaled if parts.minima else 0
    tokens = Tokens(rows, columns, parts.columns, parts.columns // 2 + parts.columns // BLOCK + sums, "i32", lanes)
    numbers = (*parts.numbers, 1, 2, tokens.tile, lanes, parts.scaled // 2, parts.columns // parts.scaled)
    products = Products(
        _NAMES[lanes],
        parts.stored,
        (*numbers, BLOCK // parts.scaled),
        (*parts.before, f"%zero = arith.constant dense<0> : {tokens.integers}"),
        parts.lines,
        _ROWS_OF[lanes],
        partial(_products, tokens, parts),
    )
    arrangement = arranged_pairs(tokens, planes, parts.scaled if parts.minima else 0)
    return lanes_matmul(tokens, w, Buffer("y", rows * outputs, kind), products, arrangement)


def _products(tokens: Tokens, parts: PackedRows, count: int, rows: range) -> list[str]:
    sums, words = sum_registers(count, rows), parts.scaled // 2
    kinds = ", ".join([tokens.integers] * len(sums))
    once = _AT_ONCE[tokens.lanes]
    carried = ", ".join(f"%dot{r}_{half}_0 = %zero" for r, half in sums)
    made = f"%made{rows.start}"
    return [
        f"scf.for %scaled = %c0 to %c{parts.columns // parts.scaled} step %c1 {{",
        f"  %first_word = arith.muli %scaled, %c{words} : index",
        f"  {made}:{len(sums)} = scf.for %in_block = %c0 to %c{words} step %c{once} "
        f"iter_args({carried}) -> ({kinds}) {{",
        "    %word = arith.addi %first_word, %in_block : index",
        "    %column = arith.muli %word, %c2 : index",
        f"    %x_skip = arith.muli %word, %c{count * tokens.lanes} : index",
        "    %x_at = arith.addi %x_first, %x_skip : index",
        *within([line for i in range(once) for line in _word(tokens, parts, i, count, rows)], 4),
        f"    scf.yield {', '.join(f'%dot{r}_{half}_{once}' for r, half in sums)} : {kinds}",
        "  }",
        *within(_scaled(tokens, parts, count, rows, made)),
        "}",
    ]


def _word(tokens: Tokens, parts: PackedRows, i: int, count: int, rows: range) -> list[str]:
    """Multiplies word ``%word`` + i of the tile by that of each row."""
    lines, lanes = [], tokens.lanes
    pairs = f"vector<{2 * lanes}xi16>"
    for half in range(count):
        lines += _loaded(f"x{i}_", half, tokens, pairs, (i * count) * lanes, "x")
    for r in rows:
        n = f"{i}_{r}"
        lines += [
            f"%w_skip{n} = arith.constant {r * parts.stride + 2 * i} : index",
            f"%w_at{n} = arith.addi %column, %w_skip{n} : index",
            f"%pair{n} = vector.load %rows[%w_at{n}] : {parts.rows}, vector<2xi16>",
            f"%one{n} = vector.bitcast %pair{n} : vector<2xi16> to vector<1xi32>",
            f"%number{n} = vector.extract %one{n}[0] : i32 from vector<1xi32>",
            f"%all{n} = vector.broadcast %number{n} : i32 to {tokens.integers}",
            f"%w{n} = vector.bitcast %all{n} : {tokens.integers} to {pairs}",
        ]
        for half in range(count):
            total, made = f"%dot{r}_{half}_{i}", f"%dot{r}_{half}_{i + 1}"
            if lanes == 16:
                lines.append(f"{made} = {pairs_added(total, f'%w{n}', f'%x{i}_{half}')}")
            else:
                lines += [
                    f"%product{n}_{half} = {pair_dot(f'%w{n}', f'%x{i}_{half}')}",
                    f"{made} = arith.addi {total}, %product{n}_{half} : {tokens.integers}",
                ]
    return lines


def _loaded(name: str, half: int, tokens: Tokens, kind: str, skip: int = 0, base: str = "") -> list[str]:
    """Makes ``%<name><half>``, a register of the tile's words at ``%<name>_at``, cast to a type."""
    return [
        f"%{name}_half{half} = arith.constant {skip + tokens.lanes * half} : index",
        f"%{name}_at{half} = arith.addi %{base or name}_at, %{name}_half{half} : index",
        f"%{name}_bits{half} = vector.load %x[%{name}_at{half}] : {tokens.made.memref}, {tokens.integers}",
        f"%{name}{half} = vector.bitcast %{name}_bits{half} : {tokens.integers} to {kind}",
    ]


def _scaled(tokens: Tokens, parts: PackedRows, count: int, rows: range, made: str) -> list[str]:
    """Adds integer sums, times the scales of x and W, less the minima times x's sums, to the sums."""
    sums, floats = sum_registers(count, rows), tokens.floats
    lines = [f"%block = arith.divui %scaled, %c{BLOCK // parts.scaled} : index"]
    first = parts.columns // 2
    places = [("xs", "%block", first)] + ([("xt", "%scaled", first + parts.columns // BLOCK)] if parts.minima else [])
    for name, number, first in places:
        lines += [
            f"%{name}_first = arith.constant {first} : index",
            f"%{name}_word = arith.addi {number}, %{name}_first : index",
            f"%{name}_skip = arith.muli %{name}_word, %c{count * tokens.lanes} : index",
            f"%{name}_at = arith.addi %x_first, %{name}_skip : index",
        ]
        for half in range(count):
            lines += _loaded(name, half, tokens, floats)
    for r in rows:
        lines += _spread(tokens, "scale", r, 0)
        lines += _spread(tokens, "minimum", r, parts.minima) if parts.minima else []
    for i, (r, half) in enumerate(sums):
        n = f"{r}_{half}"
        lines += [
            f"%float{n} = arith.sitofp {made}#{i} : {tokens.integers} to {floats}",
            f"%both{n} = arith.mulf %scale{r}, %xs{half} : {floats}",
            sums_loaded(tokens, f"before{n}", r, half),
        ]
        before = f"%before{n}"
        if parts.minima:
            lines.append(f"%less{n} = math.fma %minimum{r}, %xt{half}, {before} : {floats}")
            before = f"%less{n}"
        lines += [
            f"%after{n} = math.fma %float{n}, %both{n}, {before} : {floats}",
            sums_stored(tokens, f"%after{n}", r, half),
        ]
    return lines


def _spread(tokens: Tokens, name: str, r: int, place: int) -> list[str]:
    """Makes ``%<name><r>``, a row's scale or minimum on all lanes."""
    return [
        f"%{name}_skip{r} = arith.constant {ROW_SCALES * r + place} : index",
        f"%{name}_at{r} = arith.addi %scaled, %{name}_skip{r} : index",
        f"%{name}_one{r} = memref.load %scales[%{name}_at{r}] : {SCALES}",
        f"%{name}{r} = vector.broadcast %{name}_one{r} : f32 to {tokens.floats}",
    ]
