"""Y = X W^T of several tokens, W of 16 bits or of f32, with the sums of the kernel for one token, bit for bit."""

from functools import partial
from typing import Final

from run_iree.kernels._instruction_sets import bf16_dot
from run_iree.kernels._lines import Buffer
from run_iree.kernels._packed_matvec import RowSteps
from run_iree.kernels._packed_tokens import packed_tokens
from run_iree.kernels._text import CpuKernel, largest_divisor, listed, within
from run_iree.kernels._wide_matvec import APART, MASKS, STEP, as_floats

_LANES: Final = 16
_SUMS: Final = f"vector<{_LANES}xf32>"


def wide_tokens_kernel(
    sizes: tuple[int, int, int], kinds: tuple[str, str], *, pairs: bool, ahead: int, tile: int, parts_apart: bool
) -> CpuKernel:
    """Builds x [T, K], w [N, K]: y [T, N].

    Args:
        sizes: T, N, K; K is a multiple of 32.
        kinds: dtype of x and w, bf16, f16 or f32; dtype of y.
        pairs: whether to use ``vdpbf16ps``; for bf16 only.
        ahead: prefetch distance in bytes.
        tile: most tokens at once.
        parts_apart: see ``packed_tokens``.
    """
    (rows, outputs, columns), (kind, made) = sizes, kinds
    w = Buffer("w", outputs * columns, kind)
    buffers = Buffer("x", rows * columns, kind), w, Buffer("y", rows * outputs, made)
    name = f"{'avx512-bf16' if pairs else 'fma'}-few-tokens.{kind}"
    make = partial(_steps, columns, w, pairs)
    return packed_tokens(name, sizes, buffers, make, tile=tile, ahead=ahead, parts_apart=parts_apart)


def _steps(columns: int, w: Buffer, pairs: bool, at_once: int | None) -> RowSteps:
    """Returns the steps along rows, some sums of which do not wait for each other."""
    apart = largest_divisor(columns // STEP, APART)
    width = STEP * apart
    most = at_once or columns // width
    x = Buffer("x", columns, w.kind)
    kept = Buffer("x_kept", most * width, w.kind if pairs else "f32")
    of_row, sums = list[str](), f"vector<{_LANES * apart}xf32>"
    for i in range(apart):
        lanes = listed(range(_LANES * i, _LANES * i + _LANES))
        of_row.append(f"%sum{i} = vector.shuffle %sum, %sum {lanes} : {sums}, {sums}")
        of_row += _part(i, w, kept, pairs, (f"%sum{i}", f"%next{i}"))
    return RowSteps(
        width,
        width,
        [1, *range(0, width, _LANES)],
        () if pairs else MASKS,
        (),
        [*of_row, *_joined(apart)],
        _arranged(width, x, kept, pairs),
        most,
        _LANES * apart,
        (kept,),
        apart,
        one_by_one=[_part(i, w, kept, pairs, ("%sum", "%next")) for i in range(apart)],
    )


def _part(i: int, w: Buffer, kept: Buffer, pairs: bool, names: tuple[str, str]) -> list[str]:
    """Makes the second of two names, the sum that the first one has, and the products of 32 columns of the step."""
    before, after = names
    lines = [f"%w_at{i} = arith.addi %at, %c{STEP * i} : index", *as_floats(f"w{i}", f"%w_at{i}", w, pairs)]
    places = [("", 0, STEP)] if pairs else [("_a", 0, _LANES), ("_b", _LANES, _LANES)]
    for side, skip, count in places:
        lines += [
            f"%x_at{i}{side} = arith.addi %local_at, %c{STEP * i + skip} : index",
            f"%x{i}{side} = vector.load %{kept.name}[%x_at{i}{side}] : {kept.memref}, vector<{count}x{kept.kind}>",
        ]
    if pairs:
        return [*lines, f"{after} = {bf16_dot(before, f'%w{i}', f'%x{i}')}"]
    return [
        *lines,
        f"%half{i} = math.fma %w{i}_a, %x{i}_a, {before} : {_SUMS}",
        f"{after} = math.fma %w{i}_b, %x{i}_b, %half{i} : {_SUMS}",
    ]


def _joined(apart: int) -> list[str]:
    """Makes ``%next`` of its parts."""
    lines, name = list[str](), "%next0"
    for i in range(1, apart):
        after = "%next" if i == apart - 1 else f"%next_to{i}"
        order, kind = listed(range(_LANES * (i + 1))), f"vector<{_LANES * i}xf32>"
        lines.append(f"{after} = vector.shuffle {name}, %next{i} {order} : {kind}, {_SUMS}")
        name = after
    if apart == 1:
        lines.append(f"%next = vector.shuffle %next0, %next0 {listed(range(_LANES))} : {_SUMS}, {_SUMS}")
    return lines


def _arranged(width: int, x: Buffer, kept: Buffer, pairs: bool) -> list[str]:
    """Stores x of the steps from ``%first_step`` to ``%end_step`` as they multiply it."""
    lines = [
        f"%from_step = arith.muli %kept_step, %c{width} : index",
        "%own_step = arith.subi %kept_step, %first_step : index",
        f"%to_step = arith.muli %own_step, %c{width} : index",
    ]
    for i in range(width // STEP):
        lines += [
            f"%from{i} = arith.addi %from_step, %c{STEP * i} : index",
            *as_floats(f"given{i}", f"%from{i}", x, pairs),
        ]
        for side, skip, count in [("", 0, STEP)] if pairs else [("_a", 0, _LANES), ("_b", _LANES, _LANES)]:
            kind = f"vector<{count}x{kept.kind}>"
            lines += [
                f"%to{i}{side} = arith.addi %to_step, %c{STEP * i + skip} : index",
                f"vector.store %given{i}{side}, %{kept.name}[%to{i}{side}] : {kept.memref}, {kind}",
            ]
    return ["scf.for %kept_step = %first_step to %end_step step %c1 {", *within(lines), "}"]
