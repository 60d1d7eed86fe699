"""y = W x of one token, for CPUs with AVX-512 VNNI: at the speed of memory.

Row after row, so that a thread reads its weights from the first byte to the last, in steps that differ by encoding.
What is needed some KiB later may be asked for now: some cores wait for memory longer than their own prefetcher looks
ahead. Four rows side by side, which share what is loaded of x, are slower: a step of Q8_0 took 1.5 times as long on an
EPYC (docs/benchmarks.md).
"""

from typing import Final

from compile_hlo.iree.kernels._packed_row import packed_buffers
from compile_hlo.iree.kernels._text import (
    Kernel,
    asked,
    constants,
    indented,
    own_rows,
    share,
    stored,
    wanted_workgroups,
)
from compile_hlo.iree.kernels._vnni_k_steps import q4_k_steps, q6_k_steps
from compile_hlo.iree.kernels._vnni_steps import block_steps
from lang_core import BLOCK, Encoding

NAME: Final = "avx512-vnni-matvec"
_LINE: Final = 64  # bytes that memory gives at once


def fits_matvec(columns: int, encoding: Encoding) -> bool:
    """Whether there is a kernel for so many columns: for whole steps."""
    return columns % max(encoding.block, 2 * BLOCK) == 0


def matvec_kernel(outputs: int, columns: int, encoding: Encoding, dtype: str, *, ahead: int) -> Kernel:
    """q i8 [columns], scale f32, total i32 [columns / 32], w [outputs, bytes]: y [outputs]; see ``fits_matvec``.

    Args:
        outputs: how many.
        columns: how many.
        encoding: of w.
        dtype: of y.
        ahead: how many bytes ahead memory is asked; 0 where the CPU looks ahead well enough.
    """
    buffers = packed_buffers(1, outputs, columns, encoding, dtype)
    row_bytes = columns // encoding.block * encoding.block_bytes
    make = {"q4_k": q4_k_steps, "q6_k": q6_k_steps}.get(encoding.name)
    w, y = buffers[3].memref, buffers[4]
    steps = block_steps(columns, encoding, w) if make is None else make(columns, w)
    each, workgroups = share(outputs, 1, wanted_workgroups(buffers[3].elements))
    # That one line of seventeen is left out where steps do not begin with lines does not matter.
    lines = [ahead + _LINE * line for line in range(-(-(steps.row_bytes - 8) // _LINE))] if ahead else []
    numbers = [1, steps.width, steps.row_bytes, row_bytes, columns // steps.width, each, outputs]
    body = f"""\
{constants([*numbers, *steps.numbers, *lines])}
{indented(steps.before, 0)}
%none = arith.constant dense<0.0> : vector<16xf32>
{own_rows(each, outputs)}
scf.for %row = %first to %end step %c1 {{
  %begin = arith.muli %row, %c{row_bytes} : index
  %made = scf.for %step = %c0 to %c{columns // steps.width} step %c1 iter_args(%sum = %none) -> (vector<16xf32>) {{
    %x_at = arith.muli %step, %c{steps.width} : index
    %in_row = arith.muli %step, %c{steps.row_bytes} : index
    %at = arith.addi %begin, %in_row : index
{indented(asked("soon", "%at", buffers[3], lines), 4)}
{indented(steps.of_x, 4)}
{indented(steps.of_row, 4)}
    scf.yield %next : vector<16xf32>
  }}
  %y_row = vector.reduction <add>, %made : vector<16xf32> into f32
{indented(stored("y_row", "%row", y), 2)}
}}
"""
    return Kernel(NAME, buffers, workgroups, body)
