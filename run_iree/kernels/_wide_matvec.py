"""y = W x of one token, W of 16 bits or of f32, at the speed of memory; and the same sums for several tokens.

It goes row after row, so that a thread reads its weights from the first byte to the last, and may prefetch data some
KiB ahead. With AVX512_BF16 ``vdpbf16ps`` multiplies pairs of bf16 and adds them to f32 sums; elsewhere elements become
f32 first, bf16 by a shift, even and odd elements of a register apart, those of x likewise.
"""

from typing import Final

from run_iree.kernels._instruction_sets import bf16_dot
from run_iree.kernels._lines import Buffer, element_bytes
from run_iree.kernels._text import (
    CpuKernel,
    constants,
    indented,
    largest_divisor,
    listed,
    own_rows,
    prefetches,
    results,
    share,
    stored,
    total,
    wanted_workgroups,
)

STEP: Final = 32  # columns, of which K is a multiple
APART: Final = 4  # sums of a row that do not wait for each other
_SUMS: Final = "vector<16xf32>"
MASKS: Final = (
    "%sixteen = arith.constant dense<16> : vector<16xi32>",
    "%upper = arith.constant dense<-65536> : vector<16xi32>",
)


def wide_matvec_kernel(outputs: int, columns: int, kinds: tuple[str, str], *, pairs: bool, ahead: int) -> CpuKernel:
    """Builds x [columns], w [outputs, columns]: y [outputs].

    Args:
        outputs: number of outputs.
        columns: number of columns, a multiple of 32.
        kinds: dtype of x and w, bf16, f16 or f32; dtype of y, one of these or f32.
        pairs: whether to use ``vdpbf16ps``; for bf16 only.
        ahead: prefetch distance in bytes; 0 for none.
    """
    kind, made = kinds
    buffers = (Buffer("x", columns, kind), Buffer("w", outputs * columns, kind), Buffer("y", outputs, made))
    apart = largest_divisor(columns // STEP, APART)
    own, workgroups = share(outputs, 1, wanted_workgroups(buffers[1].bytes))
    every = range(apart)
    sums, kinds_of = ", ".join(f"%sum{i} = %none" for i in every), ", ".join([_SUMS] * apart)
    numbers = [1, columns, own, outputs, ahead // element_bytes(kind), STEP * apart, *(STEP * i for i in every)]
    body = f"""\
{constants(numbers)}
%none = arith.constant dense<0.0> : {_SUMS}
{indented(MASKS, 0)}
{own_rows(own, outputs)}
scf.for %row = %first to %end step %c1 {{
  %begin = arith.muli %row, %c{columns} : index
  {"%made" if apart == 1 else f"%made:{apart}"} = scf.for %at = %c0 to %c{columns} step %c{STEP * apart}
      iter_args({sums}) -> ({kinds_of}) {{
{indented([line for i in every for line in _part(i, buffers, pairs, ahead // element_bytes(kind))], 4)}
    scf.yield {", ".join(f"%next{i}" for i in every)} : {kinds_of}
  }}
{indented(total("total", results("%made", apart)), 2)}
{indented(stored("total", "%row", buffers[2]), 2)}
}}
"""
    return CpuKernel("avx512-bf16-matvec" if pairs else "fma-matvec", buffers, workgroups, body)


def _part(i: int, buffers: tuple[Buffer, ...], pairs: bool, ahead: int) -> list[str]:
    """Makes ``%next<i>``, the sum with 32 more products."""
    x, w, _ = buffers
    lines = [
        f"%x_at{i} = arith.addi %at, %c{STEP * i} : index",
        f"%w_at{i} = arith.addi %begin, %x_at{i} : index",
        *prefetches(f"soon{i}_", f"%w_at{i}", w, [ahead] if ahead else []),
        *as_floats(f"x{i}", f"%x_at{i}", x, pairs),
        *as_floats(f"w{i}", f"%w_at{i}", w, pairs),
    ]
    if pairs:
        return [*lines, f"%next{i} = {bf16_dot(f'%sum{i}', f'%w{i}', f'%x{i}')}"]
    return [
        *lines,
        f"%half{i} = math.fma %w{i}_a, %x{i}_a, %sum{i} : {_SUMS}",
        f"%next{i} = math.fma %w{i}_b, %x{i}_b, %half{i} : {_SUMS}",
    ]


def as_floats(name: str, place: str, buffer: Buffer, pairs: bool) -> list[str]:
    """Makes ``%<name>`` vector<32x...> as stored, or ``%<name>_a`` and ``%<name>_b`` of sixteen f32 each."""
    kind = f"vector<{STEP}x{buffer.kind}>"
    lines = [f"%{name} = vector.load %{buffer.name}[{place}] : {buffer.memref}, {kind}"]
    if pairs:
        return lines
    if buffer.kind == "bf16":
        return [
            *lines,
            f"%{name}_words = vector.bitcast %{name} : {kind} to vector<16xi32>",
            f"%{name}_even = arith.shli %{name}_words, %sixteen : vector<16xi32>",
            f"%{name}_odd = arith.andi %{name}_words, %upper : vector<16xi32>",
            f"%{name}_a = vector.bitcast %{name}_even : vector<16xi32> to {_SUMS}",
            f"%{name}_b = vector.bitcast %{name}_odd : vector<16xi32> to {_SUMS}",
        ]
    for half, lanes in (("a", range(16)), ("b", range(16, 32))):
        part = f"%{name}_{half}" if buffer.kind == "f32" else f"%{name}_{half}16"
        lines.append(f"{part} = vector.shuffle %{name}, %{name} {listed(lanes)} : {kind}, {kind}")
        if buffer.kind != "f32":
            lines.append(f"%{name}_{half} = arith.extf {part} : vector<16x{buffer.kind}> to {_SUMS}")
    return lines
