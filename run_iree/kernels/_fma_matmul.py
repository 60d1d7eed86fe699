"""Y = X W^T of several tokens, W of 16 bits, for CPUs with AVX2 and FMA, computed in f32.

Six rows of W and sixteen tokens make twelve sums in registers.
"""

from functools import partial
from typing import Final

from run_iree.kernels._lanes_matmul import (
    EIGHT,
    ROWS,
    Products,
    lanes_matmul,
    registers,
    sums_loaded,
    sums_stored,
)
from run_iree.kernels._text import Buffer, CpuKernel, largest_divisor, prefetches, scratch, within
from run_iree.kernels._tokens import LANES, TILE, Tokens, arranged_floats

NAME: Final = "fma-matmul"
_STEP: Final = 32  # columns, of which K is a multiple
_PART: Final = 128  # columns of a part, at most
_PAD: Final = 8  # elements between rows in the scratch, so that they do not lie a power of two apart
_AT_ONCE: Final = 4  # columns in the body of the inner loop
_ROWS_OF: Final = {TILE: (6, 6, 4), LANES: (8, 8)}


def fma_matmul_kernel(rows: int, outputs: int, columns: int, kinds: tuple[str, str]) -> CpuKernel:
    """Builds x [rows, columns], w [outputs, columns]: y [rows, outputs].

    Args:
        rows: number of tokens.
        outputs: number of outputs, a multiple of 16.
        columns: number of columns, a multiple of 32.
        kinds: dtype of x and w, bf16 or f16; dtype of y, one of these or f32.
    """
    kind, made = kinds
    w, y = Buffer("w", outputs * columns, kind), Buffer("y", rows * outputs, made)
    part = _STEP * largest_divisor(columns // _STEP, _PART // _STEP)
    tokens = Tokens(rows, columns, part, part, "f32")
    stride = part + _PAD
    own, ahead = f"memref<{ROWS * stride}xf32>", ROWS * columns
    unpack = [
        f"%to = arith.muli %r, %c{stride} : index",
        f"scf.for %column = %c0 to %c{part} step %c{_STEP} {{",
        "  %w_at = arith.addi %at, %column : index",
        *within(prefetches("soon", "%w_at", w, [ahead], locality=2)),
        f"  %given = vector.load %w[%w_at] : {w.memref}, vector<32x{kind}>",
        f"  %wide = arith.extf %given : vector<32x{kind}> to vector<32xf32>",
        "  %place = arith.addi %to, %column : index",
        f"  vector.store %wide, %rows[%place] : {own}, vector<32xf32>",
        "}",
    ]

    numbers = (_STEP, part, stride, _AT_ONCE, TILE, LANES, ahead)
    lines = partial(_products, tokens, stride)
    products = Products(NAME, part, numbers, [scratch("rows", own)], unpack, _ROWS_OF, lines)
    return lanes_matmul(tokens, w, y, products, arranged_floats(tokens, kind))


def _products(tokens: Tokens, stride: int, width: int, rows: range) -> list[str]:
    sums = registers(width, rows)
    kinds = ", ".join([EIGHT] * len(sums))
    carried = ", ".join(f"%sum{r}_{half}_0 = %before{r}_{half}" for r, half in sums)
    made = f"%made{rows.start}"
    return [
        *(sums_loaded(f"before{r}_{half}", r, half) for r, half in sums),
        f"{made}:{len(sums)} = scf.for %column = %c0 to %c{tokens.part} step %c{_AT_ONCE} "
        f"iter_args({carried}) -> ({kinds}) {{",
        f"  %x_skip = arith.muli %column, %c{width} : index",
        "  %x_at = arith.addi %x_first, %x_skip : index",
        *within([line for i in range(_AT_ONCE) for line in _column(tokens, stride, i, width, rows)]),
        f"  scf.yield {', '.join(f'%sum{r}_{half}_{_AT_ONCE}' for r, half in sums)} : {kinds}",
        "}",
        *(sums_stored(f"{made}#{i}", r, half) for i, (r, half) in enumerate(sums)),
    ]


def _column(tokens: Tokens, stride: int, i: int, width: int, rows: range) -> list[str]:
    """Multiplies column ``%column`` + i of the tile by that of each row."""
    lines = []
    for half in range(width // LANES):
        lines += [
            f"%x_skip{i}_{half} = arith.constant {i * width + half * LANES} : index",
            f"%x_at{i}_{half} = arith.addi %x_at, %x_skip{i}_{half} : index",
            f"%x{i}_{half} = vector.load %x[%x_at{i}_{half}] : {tokens.made.memref}, {EIGHT}",
        ]
    for r in rows:
        lines += [
            f"%w_skip{i}_{r} = arith.constant {r * stride + i} : index",
            f"%w_at{i}_{r} = arith.addi %column, %w_skip{i}_{r} : index",
            f"%one{i}_{r} = memref.load %rows[%w_at{i}_{r}] : memref<{ROWS * stride}xf32>",
            f"%all{i}_{r} = vector.broadcast %one{i}_{r} : f32 to {EIGHT}",
        ]
        for half in range(width // LANES):
            before, after = f"%sum{r}_{half}_{i}", f"%sum{r}_{half}_{i + 1}"
            lines.append(f"{after} = math.fma %all{i}_{r}, %x{i}_{half}, {before} : {EIGHT}")
    return lines
