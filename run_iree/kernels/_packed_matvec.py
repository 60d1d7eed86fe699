"""y = W x of one token with packed weights: the loop around the steps of an instruction set.

It goes row after row, so that a thread reads its weights from the first byte to the last. Data some KiB ahead may be
prefetched: some cores wait for memory longer than their own prefetcher looks ahead. Four rows side by side, which share
the loads of x, are slower: a step of Q8_0 took 1.5 times as long on an EPYC (docs/benchmarks.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK
from run_iree.kernels._lines import LINE, Buffer
from run_iree.kernels._text import (
    CpuKernel,
    constants,
    indented,
    own_rows,
    prefetches,
    scratch,
    share,
    stored,
    total_in_turn,
)

_MOST_ROWS: Final = 512  # rows of a workgroup that keeps sums on the stack


@dataclass(frozen=True, slots=True)
class RowSteps:
    """Body of the inner loop.

    Attributes:
        width: columns of a step.
        row_bytes: bytes of a row in a step.
        numbers: index constants that the lines need.
        before: lines ahead of all loops.
        arranged: lines ahead of the rows, which prepare x of the steps from ``%first_step`` to ``%end_step``.
        most: steps for which x is prepared at a time; None for all of a row.
        kept: memories of x that is prepared, of ``most`` steps.
        apart: parts of the sum that are added up before their lanes are.
        of_x: lines that load x from ``%x_at`` on.
        of_row: lines that make ``%next`` of ``%sum``, both f32 of ``lanes``, with the bytes of a row from ``%at`` on.
        lanes: lanes of the sum: sixteen, or thirty-two for two sums of sixteen that do not wait for each other.
        in_turn: whether lanes are added one after the other; else in the order of the compiler's choice.
        one_by_one: ``of_row`` for each of the ``apart`` parts of the sum alone, of which each has a share of the lanes
            and of the bytes; empty if they depend on one another.
    """

    width: int
    row_bytes: int
    numbers: Sequence[int]
    before: Sequence[str]
    of_x: Sequence[str]
    of_row: Sequence[str]
    arranged: Sequence[str] = ()
    most: int | None = None
    lanes: int = 16
    kept: Sequence[Buffer] = ()
    apart: int = 1
    in_turn: bool = False
    one_by_one: Sequence[Sequence[str]] = ()

    def reduced(self, name: str, sums: str) -> list[str]:
        """Makes ``%<name>``, the sum of the lanes of a row's sums."""
        if self.in_turn:
            return total_in_turn(name, sums, self.lanes)
        return [f"%{name} = vector.reduction <add>, {sums} : vector<{self.lanes}xf32> into f32"]


def packed_matvec(name: str, buffers: tuple[Buffer, ...], steps: RowSteps, *, ahead: int, workgroups: int) -> CpuKernel:
    """Builds a kernel with rows of whole steps, or with a last step that overlaps the step before it.

    Args:
        name: name of the kernel.
        buffers: ``packed_buffers`` of one row of x.
        steps: steps along a row.
        ahead: prefetch distance in bytes; 0 for none.
        workgroups: number of workgroups that is wanted.
    """
    _, scale, _, w, y = buffers
    columns, outputs = scale.elements * BLOCK, y.elements
    row_bytes, count = w.elements // outputs, -(-columns // steps.width)
    ranges = 1 if steps.most is None else -(-count // steps.most)
    own, made = share(outputs, 1, workgroups if ranges == 1 else max(workgroups, -(-outputs // _MOST_ROWS)))
    # Where steps do not begin at cache lines one line of seventeen is left out, which does not matter.
    lines = [ahead + LINE * line for line in range(-(-(steps.row_bytes - 8) // LINE))] if ahead else []
    numbers = [
        1,
        steps.width,
        steps.row_bytes,
        row_bytes,
        row_bytes - steps.row_bytes,
        count,
        -(-count // ranges),
        own,
        outputs,
        ranges,
    ]
    soon = prefetches("soon", "%at", w, lines)
    if lines and ranges > 1:
        numbers.append(-(-ahead // steps.row_bytes))
        soon = [*_next_in_range(numbers[-1], -(-count // ranges)), *prefetches("soon", "%soon_at", w, lines)]
    row = _row(row_bytes, steps, soon, whole=columns % steps.width == 0)
    body = f"""\
{constants([*numbers, *steps.numbers, *lines])}
{indented([*(scratch(memory.name, memory.memref) for memory in steps.kept), *steps.before], 0)}
%none = arith.constant dense<0.0> : vector<{steps.lanes}xf32>
{own_rows(own, outputs)}
{_whole(row, steps, count, y) if ranges == 1 else _in_ranges(row, steps, (row_bytes, ranges, count, own), y)}
"""
    return CpuKernel(name, buffers, made, body)


def _row(row_bytes: int, steps: RowSteps, soon: Sequence[str], *, whole: bool) -> str:
    """Returns the lines that make ``%y_row`` of the steps of a row from ``%first_step`` to ``%end_step``."""
    sums = f"vector<{steps.lanes}xf32>"
    even = f"arith.muli %step, %c{steps.row_bytes} : index"
    in_row = [f"%in_row = {even}"]
    if not whole:
        in_row = [
            f"%in_row_even = {even}",
            f"%in_row = arith.minui %in_row_even, %c{row_bytes - steps.row_bytes} : index",
        ]
    return f"""\
%begin = arith.muli %row, %c{row_bytes} : index
%made = scf.for %step = %first_step to %end_step step %c1 iter_args(%sum = %none) -> ({sums}) {{
  %x_at = arith.muli %step, %c{steps.width} : index
  %local_step = arith.subi %step, %first_step : index
  %local_at = arith.muli %local_step, %c{steps.width} : index
{indented(in_row, 2)}
  %at = arith.addi %begin, %in_row : index
{indented(soon, 2)}
{indented(steps.of_x, 2)}
{indented(steps.of_row, 2)}
  scf.yield %next : {sums}
}}
{indented(steps.reduced("y_row", "%made"), 0)}"""


def _next_in_range(ahead: int, width: int) -> list[str]:
    """Makes ``%soon_at``, from which so many steps ahead are in the range: of later rows at the end of this one."""
    lines, at, left = ["%left0 = arith.subi %end_step, %step : index"], "%at", "%left0"
    for row in range(-(-ahead // width)):
        lines += [
            f"%is_next{row} = arith.cmpi ule, {left}, %c{ahead} : index",
            f"%jump{row} = arith.select %is_next{row}, %skipped, %c0 : index",
            f"%soon_at{row} = arith.addi {at}, %jump{row} : index",
            f"%left{row + 1} = arith.addi {left}, %range_steps : index",
        ]
        at, left = f"%soon_at{row}", f"%left{row + 1}"
    return [*lines, f"%soon_at = arith.addi {at}, %c0 : index"]


def _whole(row: str, steps: RowSteps, count: int, y: Buffer) -> str:
    """Returns the loop over rows with x prepared at once."""
    return f"""\
%first_step = arith.constant 0 : index
%end_step = arith.constant {count} : index
{indented(steps.arranged, 0)}
scf.for %row = %first to %end step %c1 {{
{indented([*row.splitlines(), *stored("y_row", "%row", y)], 2)}
}}"""


def _in_ranges(row: str, steps: RowSteps, sizes: tuple[int, int, int, int], y: Buffer) -> str:
    """Returns the loops over ranges of steps, sized by the stack, and over rows, with their sums kept.

    Args:
        row: lines of a row.
        steps: steps along a row.
        sizes: bytes of a row, ranges, steps of a row, rows of a workgroup.
        y: result.
    """
    row_bytes, ranges, count, own = sizes
    width = -(-count // ranges)
    kind = f"memref<{own}xf32>"
    of_row = [
        *row.splitlines(),
        "%own_row = arith.subi %row, %first : index",
        f"%y_before = memref.load %partial[%own_row] : {kind}",
        "%y_now = arith.addf %y_before, %y_row : f32",
        f"memref.store %y_now, %partial[%own_row] : {kind}",
    ]
    return f"""\
{scratch("partial", kind)}
%zero = arith.constant 0.0 : f32
scf.for %own_row = %c0 to %c{own} step %c1 {{
  memref.store %zero, %partial[%own_row] : {kind}
}}
scf.for %range = %c0 to %c{ranges} step %c1 {{
  %first_step = arith.muli %range, %c{width} : index
  %after_step = arith.addi %first_step, %c{width} : index
  %end_step = arith.minui %after_step, %c{count} : index
  %range_steps = arith.subi %end_step, %first_step : index
  %range_bytes = arith.muli %range_steps, %c{steps.row_bytes} : index
  %skipped = arith.subi %c{row_bytes}, %range_bytes : index
{indented(steps.arranged, 2)}
  scf.for %row = %first to %end step %c1 {{
{indented(of_row, 4)}
  }}
}}
scf.for %row = %first to %end step %c1 {{
  %own_row = arith.subi %row, %first : index
  %y_made = memref.load %partial[%own_row] : {kind}
{indented(stored("y_made", "%row", y), 2)}
}}"""
