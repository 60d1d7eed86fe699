"""Y = X W^T of several tokens, W of 16 bits, for CPUs with AVX-512.

Rows of W are transposed into panels of sixteen: a register has one column of all sixteen rows in f32, or with
AVX512_BF16 two columns in bf16. A number of a token (or two), on all lanes, advances sixteen products. Eight tokens
share what is loaded of two panels. Their part of x is copied first, because rows of x are often a power of two apart
and then fall into the same set of a cache.
"""

from dataclasses import dataclass
from typing import Final

from run_iree.kernels._instruction_sets import bf16_dot
from run_iree.kernels._text import (
    Buffer,
    CpuKernel,
    constants,
    indented,
    largest_divisor,
    own_rows,
    scratch,
    share,
    turned,
    wanted_workgroups,
    within,
)
from run_iree.kernels._wide_matvec import STEP

PANEL_ROWS: Final = 16  # of W in a panel
_TOKENS: Final = 8  # that share what is loaded of panels
_WORDS: Final = 128  # of each row in a panel, at most: 16 KiB of stack for two
_PAD: Final = 16  # words between the tokens of the copy, so that they do not lie a power of two apart
_SUMS: Final = "vector<16xf32>"


@dataclass(frozen=True, slots=True)
class _Plan:
    """Sizes of a product and its panels.

    Attributes:
        rows: number of tokens, T.
        outputs: number of outputs, N, a multiple of 16.
        columns: number of columns, K, a multiple of 32.
        kind: dtype of x and w.
        pairs: whether a word is two bf16; else it is an f32.
    """

    rows: int
    outputs: int
    columns: int
    kind: str
    pairs: bool

    @property
    def per_word(self) -> int:
        """Columns of a word."""
        return 2 if self.pairs else 1

    @property
    def words(self) -> int:
        """Words of each row in a panel."""
        return largest_divisor(self.columns // STEP, _WORDS * self.per_word // STEP) * STEP // self.per_word

    @property
    def panels(self) -> int:
        """Panels that are used together."""
        return 1 if self.outputs % (2 * PANEL_ROWS) else 2

    @property
    def word(self) -> str:
        """Type of a word."""
        return "i32" if self.pairs else "f32"

    @property
    def vector(self) -> str:
        """Type of sixteen words."""
        return f"vector<16x{self.word}>"

    @property
    def panel(self) -> str:
        """Type of the panels: by panels, then by words, then by rows."""
        return f"memref<{self.panels * self.words * PANEL_ROWS}x{self.word}>"

    @property
    def copy(self) -> str:
        """Type of the copy of x: by tokens."""
        return f"memref<{_TOKENS * (self.words + _PAD)}x{self.word}>"

    @property
    def buffers(self) -> tuple[Buffer, Buffer, Buffer]:
        """Buffers of x, w and y."""
        return (
            Buffer("x", self.rows * self.columns, self.kind),
            Buffer("w", self.outputs * self.columns, self.kind),
            Buffer("y", self.rows * self.outputs, "f32"),
        )


def wide_matmul_kernel(rows: int, outputs: int, columns: int, kind: str, *, pairs: bool) -> CpuKernel:
    """Builds x [rows, columns], w [outputs, columns]: y f32 [rows, outputs].

    Args:
        rows: number of tokens.
        outputs: number of outputs, a multiple of 16.
        columns: number of columns, a multiple of 32.
        kind: dtype of x and w, bf16 or f16.
        pairs: whether to use ``vdpbf16ps``; for bf16 only.
    """
    plan = _Plan(rows, outputs, columns, kind, pairs)
    unit, chunk = PANEL_ROWS * plan.panels, plan.words * plan.per_word
    own, workgroups = share(outputs, unit, wanted_workgroups(2 * plan.buffers[1].elements))
    whole = rows - rows % _TOKENS
    numbers = [1, 2, unit, columns, chunk, plan.words, own, outputs, _TOKENS, whole, rows]
    numbers += [PANEL_ROWS * i for i in range(16)] + [plan.words * PANEL_ROWS]
    numbers += [columns - chunk, (unit - 1) * columns + chunk]
    numbers += [row * columns for row in range(unit)] + [t * (plan.words + _PAD) for t in range(_TOKENS)]
    tiles = [f"scf.for %token = %c0 to %c{whole} step %c{_TOKENS} {{", *within(_tile(plan, _TOKENS)), "}"]
    if rows > whole:
        tiles += [
            f"scf.for %token = %c{whole} to %c{rows} step %c{_TOKENS} {{",
            *within(_tile(plan, rows - whole)),
            "}",
        ]
    body = f"""\
{constants(numbers)}
%none = arith.constant dense<0.0> : {_SUMS}
{scratch("panel", plan.panel)}
{scratch("copy", plan.copy)}
{own_rows(own, outputs)}
scf.for %row = %first to %end step %c{unit} {{
  %w_row = arith.muli %row, %c{columns} : index
  scf.for %chunk = %c0 to %c{columns} step %c{chunk} {{
    %begins = arith.cmpi eq, %chunk, %c0 : index
    %ends = arith.cmpi eq, %chunk, %c{columns - chunk} : index
    %ahead = arith.select %ends, %c{(unit - 1) * columns + chunk}, %c{chunk} : index
    scf.for %word = %c0 to %c{plan.words} step %c16 {{
      %columns = arith.muli %word, %c{plan.per_word} : index
      %in_row = arith.addi %chunk, %columns : index
      %w_at = arith.addi %w_row, %in_row : index
      %panel_at = arith.muli %word, %c{PANEL_ROWS} : index
{indented([line for panel in range(plan.panels) for line in _pack(plan, panel)], 6)}
    }}
{indented(tiles, 4)}
  }}
}}
"""
    return CpuKernel("avx512-bf16-matmul" if pairs else "avx512-matmul", plan.buffers, workgroups, body)


def _words(plan: _Plan, name: str, place: str, buffer: Buffer) -> list[str]:
    """Makes ``%<name>``, sixteen words of a row."""
    given = f"vector<{16 * plan.per_word}x{plan.kind}>"
    change = "vector.bitcast" if plan.pairs else "arith.extf"
    return [
        f"%{name}_given = vector.load %{buffer.name}[{place}] : {buffer.memref}, {given}",
        f"%{name} = {change} %{name}_given : {given} to {plan.vector}",
    ]


def _pack(plan: _Plan, panel: int) -> list[str]:
    """Stores sixteen words from ``%word`` on of sixteen rows, as sixteen registers of a panel."""
    w, p = plan.buffers[1], f"p{panel}_"
    lines = []
    for r in range(PANEL_ROWS):
        lines += [
            f"%{p}at{r} = arith.addi %w_at, %c{(panel * PANEL_ROWS + r) * plan.columns} : index",
            f"%{p}soon{r} = arith.addi %{p}at{r}, %ahead : index",
            f"memref.prefetch %w[%{p}soon{r}], read, locality<2>, data : {w.memref}",
            *_words(plan, f"{p}row{r}", f"%{p}at{r}", w),
        ]
    names, more = turned([f"%{p}row{r}" for r in range(PANEL_ROWS)], (1, 2, 4, 8), plan.word, f"{p}turn")
    lines += [*more, f"%{p}first = arith.addi %panel_at, %c{panel * plan.words * PANEL_ROWS} : index"]
    for word, name in enumerate(names):
        lines += [
            f"%{p}place{word} = arith.addi %{p}first, %c{PANEL_ROWS * word} : index",
            f"vector.store {name}, %panel[%{p}place{word}] : {plan.panel}, {plan.vector}",
        ]
    return lines


def _tile(plan: _Plan, count: int) -> list[str]:
    """Adds the chunk's part to the products of ``count`` tokens from ``%token`` on."""
    y = plan.buffers[2]
    lines = [
        f"%x_row = arith.muli %token, %c{plan.columns} : index",
        "%x_chunk = arith.addi %x_row, %chunk : index",
        f"scf.for %word = %c0 to %c{plan.words} step %c16 {{",
        *within(_copied(plan, count)),
        "}",
        f"%line = arith.muli %token, %c{plan.outputs} : index",
        "%y_first = arith.addi %line, %row : index",
    ]
    sums = [(t, panel) for t in range(count) for panel in range(plan.panels)]
    for t, panel in sums:
        lines += [
            f"%y_skip{t}_{panel} = arith.constant {t * plan.outputs + panel * PANEL_ROWS} : index",
            f"%y_at{t}_{panel} = arith.addi %y_first, %y_skip{t}_{panel} : index",
            f"%before{t}_{panel} = vector.load %y[%y_at{t}_{panel}] : {y.memref}, {_SUMS}",
            f"%start{t}_{panel} = arith.select %begins, %none, %before{t}_{panel} : {_SUMS}",
        ]
    kinds = ", ".join([_SUMS] * len(sums))
    carried = ", ".join(f"%sum{t}_{panel} = %start{t}_{panel}" for t, panel in sums)
    made = "%made" if len(sums) == 1 else f"%made:{len(sums)}"
    lines.append(f"{made} = scf.for %word = %c0 to %c{plan.words} step %c1 iter_args({carried}) -> ({kinds}) {{")
    lines += within(_word(plan, count))
    lines += [f"  scf.yield {', '.join(f'%next{t}_{panel}' for t, panel in sums)} : {kinds}", "}"]
    for i, (t, panel) in enumerate(sums):
        total = "%made" if len(sums) == 1 else f"%made#{i}"
        lines.append(f"vector.store {total}, %y[%y_at{t}_{panel}] : {y.memref}, {_SUMS}")
    return lines


def _copied(plan: _Plan, count: int) -> list[str]:
    """Copies sixteen words from ``%word`` on of each token."""
    lines = [
        f"%columns = arith.muli %word, %c{plan.per_word} : index",
        "%x_at = arith.addi %x_chunk, %columns : index",
    ]
    for t in range(count):
        lines += [
            f"%x_at{t} = arith.addi %x_at, %c{t * plan.columns} : index",
            *_words(plan, f"x{t}", f"%x_at{t}", plan.buffers[0]),
            f"%copy_at{t} = arith.addi %word, %c{t * (plan.words + _PAD)} : index",
            f"vector.store %x{t}, %copy[%copy_at{t}] : {plan.copy}, {plan.vector}",
        ]
    return lines


def _word(plan: _Plan, count: int) -> list[str]:
    """Multiplies a register of each panel by a word of each token."""
    lines = [f"%panel_at = arith.muli %word, %c{PANEL_ROWS} : index"]
    for panel in range(plan.panels):
        lines += [
            f"%p_at{panel} = arith.addi %panel_at, %c{panel * plan.words * PANEL_ROWS} : index",
            f"%p{panel} = vector.load %panel[%p_at{panel}] : {plan.panel}, {plan.vector}",
        ]
        if plan.pairs:
            lines.append(f"%w{panel} = vector.bitcast %p{panel} : {plan.vector} to vector<32xbf16>")
    for t in range(count):
        lines += [
            f"%x_at{t} = arith.addi %word, %c{t * (plan.words + _PAD)} : index",
            f"%one{t} = memref.load %copy[%x_at{t}] : {plan.copy}",
            f"%all{t} = vector.broadcast %one{t} : {plan.word} to {plan.vector}",
        ]
        if plan.pairs:
            lines.append(f"%x{t} = vector.bitcast %all{t} : {plan.vector} to vector<32xbf16>")
        for panel in range(plan.panels):
            total = f"%sum{t}_{panel}"
            product = (
                bf16_dot(total, f"%w{panel}", f"%x{t}")
                if plan.pairs
                else f"math.fma %all{t}, %p{panel}, {total} : {_SUMS}"
            )
            lines.append(f"%next{t}_{panel} = {product}")
    return lines
