"""y = W x of one token, for CPUs with AVX-512 VNNI: at the speed of memory.

Rows are read in steps, which differ by encoding; four rows share what is loaded of x. What makes it fast is asking for
the weights in time: a core of a server waits for memory longer than its own prefetcher looks ahead over four short rows
(12.7 to 17.8 of 19.2 GB/s for Q4_0, docs/benchmarks.md).
"""

from typing import Final

from compile_hlo.iree.kernels._packed_row import packed_buffers, wanted_workgroups
from compile_hlo.iree.kernels._text import Buffer, Kernel, constants, indented, own_rows, share, stored
from compile_hlo.iree.kernels._vnni_k_steps import q4_k_steps, q6_k_steps
from compile_hlo.iree.kernels._vnni_steps import Steps, block_steps
from lang_core import BLOCK, Encoding

NAME: Final = "avx512-vnni-matvec"
_TOGETHER: Final = 1  # rows
_AHEAD: Final = 6  # groups of rows
_LINE: Final = 64  # bytes that memory gives at once


def fits_matvec(columns: int, encoding: Encoding) -> bool:
    """Whether there is a kernel for so many columns: for whole steps."""
    return columns % max(encoding.block, 2 * BLOCK) == 0


def matvec_kernel(outputs: int, columns: int, encoding: Encoding, dtype: str) -> Kernel:
    """q i8 [columns], scale f32, total i32 [columns / 32], w [outputs, bytes]: y [outputs]; see ``fits_matvec``."""
    buffers = packed_buffers(1, outputs, columns, encoding, dtype)
    make = {"q4_k": q4_k_steps, "q6_k": q6_k_steps}.get(encoding.name)
    steps = block_steps(columns, encoding) if make is None else make(columns)
    row_bytes = columns // encoding.block * encoding.block_bytes
    each, workgroups = share(outputs, _TOGETHER, wanted_workgroups(outputs, columns, encoding))
    numbers = [1, steps.width, steps.row_bytes, row_bytes, columns // steps.width, each, outputs, *range(_TOGETHER + 1)]
    numbers += [*steps.numbers, *_ahead(steps, row_bytes)]
    body = f"""\
{constants(numbers)}
{indented(steps.before, 0)}
%none = arith.constant dense<0.0> : vector<16xf32>
{own_rows(each, outputs)}
%room = arith.subi %end, %first : index
%rest = arith.remui %room, %c{_TOGETHER} : index
%whole = arith.subi %end, %rest : index
scf.for %row = %first to %whole step %c{_TOGETHER} {{
{_rows(_TOGETHER, buffers[-1], columns // steps.width, row_bytes, steps)}
}}
scf.for %row = %whole to %end step %c1 {{
{_rows(1, buffers[-1], columns // steps.width, row_bytes, steps)}
}}
"""
    return Kernel(NAME, buffers, workgroups, body)


def _ahead(steps: Steps, row_bytes: int) -> list[int]:
    """How far ahead is asked, for each line of a step; that one line of seventeen is left out does not matter."""
    lines = -(-(steps.row_bytes - 8) // _LINE)
    return [_AHEAD * _TOGETHER * row_bytes + _LINE * line for line in range(lines)]


def _rows(count: int, y: Buffer, steps_of_row: int, row_bytes: int, steps: Steps) -> str:
    """The products of ``count`` rows from ``%row`` on."""
    every, w = range(count), f"memref<{y.elements * row_bytes}xi8>"
    lines = []
    for r in every:
        lines += [
            f"  %row{r} = arith.addi %row, %c{r} : index",
            f"  %begin{r} = arith.muli %row{r}, %c{row_bytes} : index",
        ]
    sums = ", ".join(f"%sum{r} = %none" for r in every)
    kinds = ", ".join(["vector<16xf32>"] * count)
    head = "%made" if count == 1 else f"%made:{count}"
    lines.append(f"  {head} = scf.for %step = %c0 to %c{steps_of_row} step %c1 iter_args({sums}) -> ({kinds}) {{")
    lines += [
        f"    %x_at = arith.muli %step, %c{steps.width} : index",
        f"    %in_row = arith.muli %step, %c{steps.row_bytes} : index",
        *(f"    {line}" for line in steps.of_x),
    ]
    for r in every:
        lines.append(f"    %at{r} = arith.addi %begin{r}, %in_row : index")
        if count == _TOGETHER:
            lines += [f"    {line}" for line in _prefetched(r, _ahead(steps, row_bytes), w)]
        lines += [f"    {line}" for line in steps.of_row(r, w)]
    lines.append(f"    scf.yield {', '.join(f'%next{r}' for r in every)} : {kinds}")
    lines.append("  }")
    for r in every:
        found = "%made" if count == 1 else f"%made#{r}"
        lines += [
            f"  %y{r} = vector.reduction <add>, {found} : vector<16xf32> into f32",
            *(f"  {line}" for line in stored(f"y{r}", f"%row{r}", y)),
        ]
    return "\n".join(lines)


def _prefetched(r: int, ahead: list[int], w: str) -> list[str]:
    lines = []
    for number, place in enumerate(ahead):
        lines += [
            f"%soon{r}_{number} = arith.addi %at{r}, %c{place} : index",
            f"memref.prefetch %w[%soon{r}_{number}], read, locality<3>, data : {w}",
        ]
    return lines
