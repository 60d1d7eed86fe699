"""Y = X W^T of several tokens, for CPUs with AVX2 and FMA: W of 16 bits or packed, all arithmetic in f32.

A part of sixteen rows of W at a time becomes f32, once for up to 128 tokens. Six rows and sixteen tokens make twelve
sums in registers: of a column two registers are tokens, and each of six numbers of W is the same on every lane. Sums
lie on the stack, rows of them by lanes of tokens, until all columns are done: in y they are a page apart.
"""

from dataclasses import dataclass
from typing import Final

from compile_hlo.iree.kernels._fma_rows import ROWS, RowParts, packed_parts, wide_parts
from compile_hlo.iree.kernels._fma_tokens import EIGHT, LANES, TILE, Tokens, arranged_blocks, arranged_wide
from compile_hlo.iree.kernels._text import (
    Arrangement,
    Buffer,
    Kernel,
    constants,
    indented,
    scratch,
)
from compile_hlo.iree.kernels._turn import turned
from lang_core import Encoding

NAME: Final = "fma-matmul"
_BLOCK_TILES: Final = 8  # for which W is read once
_ROWS_OF: Final = {TILE: (6, 6, 4), LANES: (8, 8)}  # that sums are made of at once, for a tile of so many tokens
_AT_ONCE: Final = 4  # columns in the body of the inner loop
_SUMS: Final = _BLOCK_TILES * TILE * ROWS + LANES * ROWS


@dataclass(frozen=True, slots=True)
class _Plan:
    """The buffers, and how tokens and rows of W are read."""

    tokens: Tokens
    x: Buffer
    w: Buffer
    y: Buffer
    parts: RowParts

    @property
    def outputs(self) -> int:
        """N."""
        return self.y.elements // self.tokens.rows

    @property
    def row_elements(self) -> int:
        """Of w's buffer."""
        return self.w.elements // self.outputs


def fma_matmul_kernel(rows: int, outputs: int, columns: int, kinds: tuple[str, str]) -> Kernel:
    """x [rows, columns], w [outputs, columns]: y [rows, outputs].

    Args:
        rows: how many tokens.
        outputs: a multiple of 16.
        columns: a multiple of 32.
        kinds: of x and w, bf16 or f16; of y, one of these or f32.
    """
    kind, made = kinds
    w, y = Buffer("w", outputs * columns, kind), Buffer("y", rows * outputs, made)
    parts = wide_parts(columns, w)
    tokens = Tokens(rows, columns, parts.columns)
    return _kernel(_Plan(tokens, tokens.made, w, y, parts), arranged_wide(tokens, kind))


def fma_packed_matmul_kernel(rows: int, outputs: int, columns: int, encoding: Encoding, kind: str) -> Kernel:
    """q i8 [rows, columns], scale f32, total i32 [rows, columns / 32], w [outputs, bytes]: y [rows, outputs].

    ``outputs`` is a multiple of 16; y is of the kind.
    """
    w = Buffer("w", outputs * (columns // encoding.block) * encoding.block_bytes, "i8")
    parts = packed_parts(columns, encoding, w)
    tokens = Tokens(rows, columns, parts.columns)
    return _kernel(_Plan(tokens, tokens.made, w, Buffer("y", rows * outputs, kind), parts), arranged_blocks(tokens))


def _kernel(plan: _Plan, arrangement: Arrangement) -> Kernel:
    tokens, parts, outputs = plan.tokens, plan.parts, plan.outputs
    few = tokens.tiles <= _BLOCK_TILES
    blocks = [
        f"scf.for %span = %c0 to %c{max(1, tokens.tiles)} step %c{_BLOCK_TILES} {{",
        f"  %span_end = arith.addi %span, %c{_BLOCK_TILES} : index",
        f"  %last = arith.minui %span_end, %c{tokens.tiles} : index",
        *(f"  {line}" for line in _panel(plan, "%span", tokens.rest and few)),
        "}",
    ]
    if tokens.rest and not few:
        blocks += [f"%last = arith.addi %c{tokens.tiles}, %c0 : index", *_panel(plan, f"%c{tokens.tiles}", True)]
    numbers = [1, *range(ROWS + 1), TILE, outputs, tokens.rows, tokens.tiles, max(1, tokens.tiles), _BLOCK_TILES]
    numbers += [parts.columns, parts.stride, parts.stored, plan.row_elements, tokens.columns, _AT_ONCE, *parts.numbers]
    numbers += [TILE * parts.columns, TILE * ROWS, tokens.registers * LANES, tokens.columns - parts.columns]
    body = f"""\
{constants(numbers)}
{indented(parts.before, 0)}
%none = arith.constant dense<0.0> : {EIGHT}
%ahead = arith.constant {ROWS * plan.row_elements} : index
{scratch("rows", parts.rows)}
{scratch("sums", f"memref<{_SUMS}xf32>")}
%row = arith.muli %workgroup, %c16 : index
{indented(blocks, 0)}
"""
    return Kernel(NAME, (plan.x, plan.w, plan.y), outputs // ROWS, body, arrangement)


def _inner(lines: list[str], by: int = 2) -> list[str]:
    return [f"{' ' * by}{line}" for line in lines]


def _panel(plan: _Plan, first: str, rest: bool) -> list[str]:
    """The rows of W, times the tiles from ``first`` to ``%last``, and with ``rest`` the tile of eight."""
    parts, tokens = plan.parts, plan.tokens
    tiles = [
        f"scf.for %tile = {first} to %last step %c1 {{",
        f"  %of_block = arith.subi %tile, {first} : index",
        f"  %sums_at = arith.muli %of_block, %c{TILE * ROWS} : index",
        f"  %tile_skip = arith.muli %tile, %c{TILE * parts.columns} : index",
        "  %x_first = arith.addi %x_part, %tile_skip : index",
        *_inner(_tile(plan, TILE)),
        "}",
    ]
    stores = [
        f"scf.for %tile = {first} to %last step %c1 {{",
        f"  %of_block = arith.subi %tile, {first} : index",
        f"  %sums_at = arith.muli %of_block, %c{TILE * ROWS} : index",
        f"  %token = arith.muli %tile, %c{TILE} : index",
        *_inner(_stored(plan, TILE)),
        "}",
    ]
    if rest:
        before = [
            f"%of_rest = arith.subi %last, {first} : index",
            f"%sums_at = arith.muli %of_rest, %c{TILE * ROWS} : index",
        ]
        tiles += [
            *before,
            f"%tile_skip = arith.muli %c{tokens.tiles}, %c{TILE * parts.columns} : index",
            "%x_first = arith.addi %x_part, %tile_skip : index",
            *_tile(plan, LANES),
        ]
        stores += [*before, f"%token = arith.muli %c{tokens.tiles}, %c{TILE} : index", *_stored(plan, LANES)]
    return [
        f"scf.for %chunk = %c0 to %c{tokens.columns} step %c{parts.columns} {{",
        "  %begins = arith.cmpi eq, %chunk, %c0 : index",
        f"  %number = arith.divui %chunk, %c{parts.columns} : index",
        f"  %in_row = arith.muli %number, %c{parts.stored} : index",
        f"  %x_part = arith.muli %chunk, %c{tokens.registers * LANES} : index",
        f"  scf.for %r = %c0 to %c{ROWS} step %c1 {{",
        "    %w_row = arith.addi %row, %r : index",
        f"    %row_at = arith.muli %w_row, %c{plan.row_elements} : index",
        "    %from = arith.addi %row_at, %in_row : index",
        f"    %to = arith.muli %r, %c{parts.stride} : index",
        *_inner(list(parts.lines), 4),
        "  }",
        *_inner(tiles),
        "}",
        *stores,
    ]


def _tile(plan: _Plan, width: int) -> list[str]:
    """The part's products of a tile, added to its sums from ``%sums_at`` on; some rows after the others."""
    lines, first = [], 0
    for count in _ROWS_OF[width]:
        lines += _rows(plan, width, first, count)
        first += count
    return lines


def _rows(plan: _Plan, width: int, first: int, count: int) -> list[str]:
    """The same for ``count`` rows of W."""
    each = [(r, half) for r in range(first, first + count) for half in range(width // LANES)]
    lines = []
    for r, half in each:
        lines += [
            f"%skip{r}_{half} = arith.constant {r * width + half * LANES} : index",
            f"%sum_at{r}_{half} = arith.addi %sums_at, %skip{r}_{half} : index",
            f"%before{r}_{half} = vector.load %sums[%sum_at{r}_{half}] : memref<{_SUMS}xf32>, {EIGHT}",
            f"%start{r}_{half} = arith.select %begins, %none, %before{r}_{half} : {EIGHT}",
        ]
    kinds = ", ".join([EIGHT] * len(each))
    carried = ", ".join(f"%sum{r}_{half}_0 = %start{r}_{half}" for r, half in each)
    lines += [
        f"%made{first}:{len(each)} = scf.for %column = %c0 to %c{plan.parts.columns} step %c{_AT_ONCE} "
        f"iter_args({carried}) -> ({kinds}) {{",
        f"  %x_skip = arith.muli %column, %c{width} : index",
        "  %x_at = arith.addi %x_first, %x_skip : index",
        *_inner([line for i in range(_AT_ONCE) for line in _column(plan, i, width, range(first, first + count))]),
        f"  scf.yield {', '.join(f'%sum{r}_{half}_{_AT_ONCE}' for r, half in each)} : {kinds}",
        "}",
    ]
    return lines + [
        f"vector.store %made{first}#{i}, %sums[%sum_at{r}_{half}] : memref<{_SUMS}xf32>, {EIGHT}"
        for i, (r, half) in enumerate(each)
    ]


def _column(plan: _Plan, i: int, width: int, rows: range) -> list[str]:
    """Column ``%column`` + i of the tile, times that of each row."""
    lines = []
    for half in range(width // LANES):
        lines += [
            f"%x_skip{i}_{half} = arith.constant {i * width + half * LANES} : index",
            f"%x_at{i}_{half} = arith.addi %x_at, %x_skip{i}_{half} : index",
            f"%x{i}_{half} = vector.load %x[%x_at{i}_{half}] : {plan.x.memref}, {EIGHT}",
        ]
    for r in rows:
        lines += [
            f"%w_skip{i}_{r} = arith.constant {r * plan.parts.stride + i} : index",
            f"%w_at{i}_{r} = arith.addi %column, %w_skip{i}_{r} : index",
            f"%one{i}_{r} = memref.load %rows[%w_at{i}_{r}] : {plan.parts.rows}",
            f"%all{i}_{r} = vector.broadcast %one{i}_{r} : f32 to {EIGHT}",
        ]
        for half in range(width // LANES):
            before, after = f"%sum{r}_{half}_{i}", f"%sum{r}_{half}_{i + 1}"
            lines.append(f"{after} = math.fma %all{i}_{r}, %x{i}_{half}, {before} : {EIGHT}")
    return lines


def _stored(plan: _Plan, width: int) -> list[str]:
    """The sums of a tile, turned, to where they belong in y: its tokens begin with ``%token``."""
    lines = []
    for half in range(width // LANES):
        for side in range(ROWS // LANES):
            name = f"{half}_{side}_"
            for r in range(LANES):
                lines += [
                    f"%skip{name}{r} = arith.constant {(side * LANES + r) * width + half * LANES} : index",
                    f"%at{name}{r} = arith.addi %sums_at, %skip{name}{r} : index",
                    f"%row{name}{r} = vector.load %sums[%at{name}{r}] : memref<{_SUMS}xf32>, {EIGHT}",
                ]
            names, more = turned(
                [f"%row{name}{r}" for r in range(LANES)], (1, 2, 4), "f32", prefix=f"turn{name}", lanes=LANES
            )
            lines += more
            for t, made in enumerate(names):
                lines += _put(plan, f"{name}{t}", made, half * LANES + t, side * LANES)
    return lines


def _put(plan: _Plan, name: str, made: str, token: int, row: int) -> list[str]:
    """Eight results of a token of the tile, from a row of the sixteen on."""
    y = plan.y
    kind = f"vector<{LANES}x{y.kind}>"
    lines = [
        f"%own{name} = arith.constant {token} : index",
        f"%token{name} = arith.addi %token, %own{name} : index",
        f"%line{name} = arith.muli %token{name}, %c{plan.outputs} : index",
        f"%side{name} = arith.addi %row, %c{row} : index",
        f"%y_at{name} = arith.addi %line{name}, %side{name} : index",
    ]
    value = made
    if y.kind != "f32":
        value = f"%rounded{name}"
        lines.append(f"{value} = arith.truncf {made} : {EIGHT} to {kind}")
    store = f"vector.store {value}, %y[%y_at{name}] : {y.memref}, {kind}"
    if plan.tokens.rows % LANES == 0:
        return [*lines, store]
    return [
        *lines,
        f"%is{name} = arith.cmpi ult, %token{name}, %c{plan.tokens.rows} : index",
        f"scf.if %is{name} {{",
        f"  {store}",
        "}",
    ]
