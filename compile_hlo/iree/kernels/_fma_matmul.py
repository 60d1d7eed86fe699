"""Y = X W^T of several tokens, for CPUs with AVX2 and FMA: W of 16 bits or packed, all arithmetic in f32.

Sixteen rows of W at a time become a panel, two registers for each column, so that they are unpacked once for all tokens.
A tile of six tokens shares what is loaded of it: each has two sums in registers.
"""

from dataclasses import dataclass
from typing import Final

from compile_hlo.iree.kernels._fma_rows import GROUP, RowParts, packed_parts, wide_parts
from compile_hlo.iree.kernels._fma_tokens import EIGHT, PLACES, TOKENS, arranged_blocks, arranged_wide, tiles_of
from compile_hlo.iree.kernels._text import (
    Arrangement,
    Buffer,
    Kernel,
    constants,
    indented,
    own_rows,
    scratch,
    share,
    wanted_workgroups,
)
from compile_hlo.iree.kernels._turn import turned
from lang_core import Encoding

NAME: Final = "fma-matmul"
ROWS: Final = 2 * GROUP  # of W in a panel
_AT_ONCE: Final = 4  # columns in the body of the inner loop
_SUMS: Final = [(t, half) for t in range(TOKENS) for half in range(2)]


@dataclass(frozen=True, slots=True)
class _Plan:
    """T, N, K, the buffers, and how W is read; x is arranged."""

    rows: int
    outputs: int
    columns: int
    x: Buffer
    w: Buffer
    y: Buffer
    parts: RowParts

    @property
    def panel(self) -> str:
        """The panel's type: by columns, then by rows of W."""
        return f"memref<{self.parts.columns * ROWS}xf32>"

    @property
    def row_elements(self) -> int:
        """Of w's buffer."""
        return self.w.elements // self.outputs


def fma_matmul_kernel(rows: int, outputs: int, columns: int, kind: str) -> Kernel:
    """x [rows, columns], w [outputs, columns], bf16 or f16: y f32 [rows, outputs].

    ``outputs`` is a multiple of 16, ``columns`` of 32.
    """
    w = Buffer("w", outputs * columns, kind)
    parts = wide_parts(columns, w)
    return _kernel(rows, outputs, columns, w, parts, arranged_wide(rows, columns, parts.columns, kind))


def fma_packed_matmul_kernel(rows: int, outputs: int, columns: int, encoding: Encoding) -> Kernel:
    """q i8 [rows, columns], scale f32, total i32 [rows, columns / 32], w [outputs, bytes]: y f32 [rows, outputs].

    ``outputs`` is a multiple of 16.
    """
    w = Buffer("w", outputs * (columns // encoding.block) * encoding.block_bytes, "i8")
    parts = packed_parts(columns, encoding, w)
    return _kernel(rows, outputs, columns, w, parts, arranged_blocks(rows, columns, parts.columns))


def _kernel(rows: int, outputs: int, columns: int, w: Buffer, parts: RowParts, arrangement: Arrangement) -> Kernel:
    x, y = Buffer("x", arrangement.kernel.buffers[-1].elements, "f32"), Buffer("y", rows * outputs, "f32")
    plan = _Plan(rows, outputs, columns, x, w, y, parts)
    each, workgroups = share(outputs, ROWS, wanted_workgroups(2 * outputs * columns))
    whole = rows - rows % TOKENS
    numbers = [1, GROUP, ROWS, TOKENS, PLACES, columns, tiles_of(rows) * parts.columns, outputs, each, rows, whole]
    numbers += [parts.columns, parts.stride, parts.stored, plan.row_elements, _AT_ONCE, *parts.numbers]
    numbers += [*(parts.stride * r for r in range(GROUP)), *(ROWS * i for i in range(GROUP))]
    numbers += [*(ROWS * i + 8 for i in range(_AT_ONCE)), *(PLACES * i + t for i in range(_AT_ONCE) for t in range(8))]
    tiles = [f"scf.for %token = %c0 to %c{whole} step %c{TOKENS} {{", *_inner(_tile(plan, TOKENS)), "}"]
    if rows > whole:
        rest = _inner(_tile(plan, rows - whole))
        tiles += [f"scf.for %token = %c{whole} to %c{rows} step %c{TOKENS} {{", *rest, "}"]
    body = f"""\
{constants(numbers)}
{indented(parts.before, 0)}
%none = arith.constant dense<0.0> : {EIGHT}
%ahead = arith.constant {ROWS * plan.row_elements} : index
{scratch("panel", plan.panel)}
{scratch("rows", parts.rows)}
{own_rows(each, outputs)}
scf.for %chunk = %c0 to %c{columns} step %c{parts.columns} {{
  %begins = arith.cmpi eq, %chunk, %c0 : index
  %number = arith.divui %chunk, %c{parts.columns} : index
  %in_row = arith.muli %number, %c{parts.stored} : index
  %x_part = arith.muli %number, %c{tiles_of(rows) * parts.columns} : index
  scf.for %row = %first to %end step %c{ROWS} {{
{indented(_pack(plan), 4)}
{indented(tiles, 4)}
  }}
}}
"""
    return Kernel(NAME, (x, w, y), workgroups, body, arrangement)


def _inner(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _pack(plan: _Plan) -> list[str]:
    """The panel: eight rows are put into the scratch, then eight of their columns at a time are turned."""
    parts = plan.parts
    lines = [
        f"scf.for %group = %c0 to %c{ROWS} step %c{GROUP} {{",
        f"  scf.for %r = %c0 to %c{GROUP} step %c1 {{",
        "    %in_panel = arith.addi %group, %r : index",
        "    %w_row = arith.addi %row, %in_panel : index",
        f"    %row_at = arith.muli %w_row, %c{plan.row_elements} : index",
        "    %from = arith.addi %row_at, %in_row : index",
        f"    %to = arith.muli %r, %c{parts.stride} : index",
        *(f"    {line}" for line in parts.lines),
        "  }",
        f"  scf.for %column = %c0 to %c{parts.columns} step %c8 {{",
    ]
    for r in range(GROUP):
        lines += [
            f"    %at{r} = arith.addi %column, %c{parts.stride * r} : index",
            f"    %row{r} = vector.load %rows[%at{r}] : {parts.rows}, {EIGHT}",
        ]
    names, more = turned([f"%row{r}" for r in range(GROUP)], (1, 2, 4), "f32", lanes=8)
    lines += [f"    {line}" for line in more]
    lines += [f"    %line = arith.muli %column, %c{ROWS} : index", "    %panel_at = arith.addi %line, %group : index"]
    for i, name in enumerate(names):
        lines += [
            f"    %place{i} = arith.addi %panel_at, %c{ROWS * i} : index",
            f"    vector.store {name}, %panel[%place{i}] : {plan.panel}, {EIGHT}",
        ]
    return [*lines, "  }", "}"]


def _tile(plan: _Plan, count: int) -> list[str]:
    """The chunk's part of the products of ``count`` tokens from ``%token`` on."""
    y, sums = plan.y, _SUMS[: 2 * count]
    lines = [
        f"%tile = arith.divui %token, %c{TOKENS} : index",
        f"%tile_columns = arith.muli %tile, %c{plan.parts.columns} : index",
        "%x_column = arith.addi %tile_columns, %x_part : index",
        f"%x_first = arith.muli %x_column, %c{PLACES} : index",
        f"%line = arith.muli %token, %c{plan.outputs} : index",
        "%y_first = arith.addi %line, %row : index",
    ]
    for t, half in sums:
        lines += [
            f"%y_skip{t}_{half} = arith.constant {t * plan.outputs + 8 * half} : index",
            f"%y_at{t}_{half} = arith.addi %y_first, %y_skip{t}_{half} : index",
        ]
    # Asked for now, added after the loop: so no product waits for it.
    lines += [f"memref.prefetch %y[%y_at{t}_0], write, locality<3>, data : {y.memref}" for t in range(count)]
    kinds = ", ".join([EIGHT] * len(sums))
    carried = ", ".join(f"%sum{t}_{half}_0 = %none" for t, half in sums)
    lines.append(
        f"%made:{len(sums)} = scf.for %column = %c0 to %c{plan.parts.columns} step %c{_AT_ONCE} "
        f"iter_args({carried}) -> ({kinds}) {{"
    )
    lines += [
        f"  %panel_at = arith.muli %column, %c{ROWS} : index",
        f"  %x_skip = arith.muli %column, %c{PLACES} : index",
        "  %x_at = arith.addi %x_first, %x_skip : index",
    ]
    lines += _inner([line for i in range(_AT_ONCE) for line in _column(plan, i, count)])
    lines += [f"  scf.yield {', '.join(f'%sum{t}_{half}_{_AT_ONCE}' for t, half in sums)} : {kinds}", "}"]
    for i, (t, half) in enumerate(sums):
        lines += [
            f"%before{t}_{half} = vector.load %y[%y_at{t}_{half}] : {y.memref}, {EIGHT}",
            f"%start{t}_{half} = arith.select %begins, %none, %before{t}_{half} : {EIGHT}",
            f"%after{t}_{half} = arith.addf %start{t}_{half}, %made#{i} : {EIGHT}",
            f"vector.store %after{t}_{half}, %y[%y_at{t}_{half}] : {y.memref}, {EIGHT}",
        ]
    return lines


def _column(plan: _Plan, i: int, count: int) -> list[str]:
    """Column ``%column`` + i of the panel, times that of each token."""
    lines = []
    for half in range(2):
        lines += [
            f"%p_at{i}_{half} = arith.addi %panel_at, %c{ROWS * i + 8 * half} : index",
            f"%p{i}_{half} = vector.load %panel[%p_at{i}_{half}] : {plan.panel}, {EIGHT}",
        ]
    for t in range(count):
        lines += [
            f"%x_at{i}_{t} = arith.addi %x_at, %c{PLACES * i + t} : index",
            f"%one{i}_{t} = memref.load %x[%x_at{i}_{t}] : {plan.x.memref}",
            f"%all{i}_{t} = vector.broadcast %one{i}_{t} : f32 to {EIGHT}",
        ]
        for half in range(2):
            before, after = f"%sum{t}_{half}_{i}", f"%sum{t}_{half}_{i + 1}"
            lines.append(f"{after} = math.fma %all{i}_{t}, %p{i}_{half}, {before} : {EIGHT}")
    return lines
