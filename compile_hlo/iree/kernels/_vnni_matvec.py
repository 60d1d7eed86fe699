"""y = W x of one token, for CPUs with AVX-512 VNNI: at the speed of memory.

A pair of blocks fills a register: ``vpdpbusd`` multiplies its 64 bytes and sums four at a time; a product with f32
scales follows. Four rows share what is loaded of x. What makes it fast is asking for the weights in time: a core of a
server waits for memory longer than its own prefetcher looks ahead over four short rows (12.7 to 17.8 of 19.2 GB/s for
Q4_0, docs/benchmarks.md).
"""

from typing import Final

from compile_hlo.iree.kernels._packed_row import half, packed_buffers, unsigned_offset, unsigned_pair, wanted_workgroups
from compile_hlo.iree.kernels._text import Buffer, Kernel, constants, listed, own_rows, share, stored
from compile_hlo.iree.kernels._vnni import vnni_dot
from lang_core import BLOCK, Encoding

NAME: Final = "avx512-vnni-matvec"
_TOGETHER: Final = 4  # rows
_AHEAD: Final = 2  # groups of rows


def matvec_kernel(outputs: int, columns: int, encoding: Encoding, dtype: str) -> Kernel:
    """q i8 [columns], scale f32, total i32 [columns / 32], w [outputs, bytes]: y [outputs]; columns % 64 is 0."""
    buffers = packed_buffers(1, outputs, columns, encoding, dtype)
    row_bytes = columns // BLOCK * encoding.block_bytes
    each, workgroups = share(outputs, _TOGETHER, wanted_workgroups(outputs, columns, encoding))
    numbers = [1, 2, 64, 2 * BLOCK, encoding.block_bytes, 2 * encoding.block_bytes, row_bytes, columns // 64]
    numbers += [each, outputs, _TOGETHER, _AHEAD * _TOGETHER * row_bytes, *range(_TOGETHER)]
    body = f"""\
{constants(numbers)}
%flip = arith.constant dense<{unsigned_offset(encoding) - 256 * (encoding.bits == 8)}> : vector<64xi8>
%nibble = arith.constant dense<15> : vector<32xi8>
%four = arith.constant dense<4> : vector<32xi8>
%zeros = arith.constant dense<0> : vector<16xi32>
%none = arith.constant dense<0.0> : vector<16xf32>
{own_rows(each, outputs)}
%room = arith.subi %end, %first : index
%rest = arith.remui %room, %c{_TOGETHER} : index
%whole = arith.subi %end, %rest : index
scf.for %row = %first to %whole step %c{_TOGETHER} {{
{_rows(_TOGETHER, buffers[-1], columns, encoding)}
}}
scf.for %row = %whole to %end step %c1 {{
{_rows(1, buffers[-1], columns, encoding)}
}}
"""
    return Kernel(NAME, buffers, workgroups, body)


def _rows(count: int, y: Buffer, columns: int, encoding: Encoding) -> str:
    """The products of ``count`` rows from ``%row`` on."""
    outputs, row_bytes = y.elements, columns // BLOCK * encoding.block_bytes
    every = range(count)
    lines = []
    for r in every:
        lines += [
            f"  %row{r} = arith.addi %row, %c{r} : index",
            f"  %begin{r} = arith.muli %row{r}, %c{row_bytes} : index",
        ]
    sums = ", ".join(f"%sum{r} = %none" for r in every)
    kinds = ", ".join(["vector<16xf32>"] * count)
    head = "%made" if count == 1 else f"%made:{count}"
    lines.append(f"  {head} = scf.for %pair = %c0 to %c{columns // 64} step %c1 iter_args({sums}) -> ({kinds}) {{")
    lines += [f"    {line}" for line in _x_lines(columns)]
    for r in every:
        lines += [f"    {line}" for line in _row_lines(r, outputs * row_bytes, count, row_bytes, encoding)]
    lines.append(f"    scf.yield {', '.join(f'%next{r}' for r in every)} : {kinds}")
    lines.append("  }")
    for r in every:
        found = "%made" if count == 1 else f"%made#{r}"
        lines += [
            f"  %y{r} = vector.reduction <add>, {found} : vector<16xf32> into f32",
            *(f"  {line}" for line in stored(f"y{r}", f"%row{r}", y)),
        ]
    return "\n".join(lines)


def _x_lines(columns: int) -> list[str]:
    """A pair of blocks of x: its integers, its scales on the lanes of each, and the correction for unsigned weights."""
    lanes = listed([0] * 8 + [1] * 8)
    return [
        "%at = arith.muli %pair, %c64 : index",
        f"%xq = vector.load %q[%at] : memref<{columns}xi8>, vector<64xi8>",
        "%scales_at = arith.muli %pair, %c2 : index",
        f"%x_two = vector.load %scale[%scales_at] : memref<{columns // BLOCK}xf32>, vector<2xf32>",
        f"%x_scale = vector.shuffle %x_two, %x_two {lanes} : vector<2xf32>, vector<2xf32>",
        f"%offset = {vnni_dot('%zeros', '%flip', '%xq')}",
        "%minus = arith.subi %zeros, %offset : vector<16xi32>",
    ]


def _row_lines(r: int, weight_bytes: int, count: int, row_bytes: int, encoding: Encoding) -> list[str]:
    """The pair of blocks of one row, multiplied and added."""
    w, size = f"memref<{weight_bytes}xi8>", encoding.block_bytes
    lines = [
        f"%step{r} = arith.muli %pair, %c{2 * size} : index",
        f"%a{r} = arith.addi %begin{r}, %step{r} : index",
        f"%b{r} = arith.addi %a{r}, %c{size} : index",
        f"%a_q{r} = arith.addi %a{r}, %c2 : index",
        f"%b_q{r} = arith.addi %b{r}, %c2 : index",
    ]
    if count == _TOGETHER:
        lines += [
            f"%soon{r} = arith.addi %a{r}, %c{_AHEAD * _TOGETHER * row_bytes} : index",
            f"memref.prefetch %w[%soon{r}], read, locality<3>, data : {w}",
        ]
    lines += unsigned_pair(encoding, f"%a_q{r}", f"%b_q{r}", f"wq{r}", w)
    lines.append(f"%dot{r} = {vnni_dot('%minus', f'%wq{r}', '%xq')}")
    lines.append(f"%float{r} = arith.sitofp %dot{r} : vector<16xi32> to vector<16xf32>")
    for side in "ab":
        lines += half(f"{side}_half{r}", f"%{side}{r}", w)
    lanes = listed([0] * 8 + [1] * 8)
    return [
        *lines,
        f"%halves{r} = vector.shuffle %a_half{r}, %b_half{r} {lanes} : vector<1xf16>, vector<1xf16>",
        f"%w_scale{r} = arith.extf %halves{r} : vector<16xf16> to vector<16xf32>",
        f"%both{r} = arith.mulf %w_scale{r}, %x_scale : vector<16xf32>",
        f"%next{r} = math.fma %float{r}, %both{r}, %sum{r} : vector<16xf32>",
    ]
