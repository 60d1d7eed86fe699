"""y = W x of one token with packed weights: the loop around the steps of an instruction set.

It goes row after row, so that a thread reads its weights from the first byte to the last. What is needed some KiB later
may be prefetched: some cores wait for memory longer than their own prefetcher looks ahead. Four rows side by side, that
share what is loaded of x, are slower: a step of Q8_0 took 1.5 times as long on an EPYC (docs/benchmarks.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from run_iree.kernels._text import LINE, Buffer, CpuKernel, constants, indented, own_rows, prefetches, share, stored


@dataclass(frozen=True, slots=True)
class Steps:
    """Body of the inner loop.

    Attributes:
        width: columns of a step.
        row_bytes: bytes of a row in a step.
        numbers: index constants that the lines need.
        before: lines ahead of all loops.
        of_x: lines that load x from ``%x_at`` on.
        of_row: lines that make ``%next`` of ``%sum``, both vector<16xf32>, with the bytes of a row from ``%at`` on.
    """

    width: int
    row_bytes: int
    numbers: Sequence[int]
    before: Sequence[str]
    of_x: Sequence[str]
    of_row: Sequence[str]


def packed_matvec(name: str, buffers: tuple[Buffer, ...], steps: Steps, *, ahead: int, workgroups: int) -> CpuKernel:
    """Builds a kernel whose rows are whole steps.

    Args:
        name: name of the kernel.
        buffers: ``packed_buffers`` of one row of x.
        steps: steps along a row.
        ahead: prefetch distance in bytes; 0 for none.
        workgroups: number of workgroups that is wanted.
    """
    q, _, _, w, y = buffers
    columns, outputs = q.elements, y.elements
    row_bytes = w.elements // outputs
    own, made = share(outputs, 1, workgroups)
    # Where steps do not begin at cache lines one line of seventeen is left out, which does not matter.
    lines = [ahead + LINE * line for line in range(-(-(steps.row_bytes - 8) // LINE))] if ahead else []
    numbers = [1, steps.width, steps.row_bytes, row_bytes, columns // steps.width, own, outputs]
    body = f"""\
{constants([*numbers, *steps.numbers, *lines])}
{indented(steps.before, 0)}
%none = arith.constant dense<0.0> : vector<16xf32>
{own_rows(own, outputs)}
scf.for %row = %first to %end step %c1 {{
  %begin = arith.muli %row, %c{row_bytes} : index
  %made = scf.for %step = %c0 to %c{columns // steps.width} step %c1 iter_args(%sum = %none) -> (vector<16xf32>) {{
    %x_at = arith.muli %step, %c{steps.width} : index
    %in_row = arith.muli %step, %c{steps.row_bytes} : index
    %at = arith.addi %begin, %in_row : index
{indented(prefetches("soon", "%at", w, lines), 4)}
{indented(steps.of_x, 4)}
{indented(steps.of_row, 4)}
    scf.yield %next : vector<16xf32>
  }}
  %y_row = vector.reduction <add>, %made : vector<16xf32> into f32
{indented(stored("y_row", "%row", y), 2)}
}}
"""
    return CpuKernel(name, buffers, made, body)
