"""Products with packed weights for CPUs of any kind: vectors that every compiler backend takes apart."""

from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
from lang_core.ops import PLANE_BASE
from run_iree.kernels._packed_row import (
    block_minimum,
    block_scale,
    looked_up,
    packed_buffers,
    signed_block,
    unsigned_offset,
)
from run_iree.kernels._sub_scales import part_minima, part_scales
from run_iree.kernels._super_block import (
    CHUNK,
    chunks_of_group,
    group_integers,
    super_block_constants,
    super_block_numbers,
)
from run_iree.kernels._text import (
    Buffer,
    CpuKernel,
    constants,
    indented,
    listed,
    own_rows,
    share,
    stored,
    wanted_workgroups,
)


@dataclass(frozen=True, slots=True)
class XPlanes:
    """Integers of x in planes.

    Attributes:
        q: buffer [rows, planes, columns].
        planes: number of planes.
        columns: columns of x.
    """

    q: Buffer
    planes: int
    columns: int

    def block(self, name: str, place: str) -> list[str]:
        """Makes ``%name`` vector<32xi32> of the integers with their first plane at an index.

        They are put together in 16 bits, so that compilers see products of 16 bits, for which CPUs have instructions.
        """
        words, wide = "vector<32xi16>", "vector<32xi32>"
        lines = [f"%{name}_bytes = vector.load %q[{place}] : {self.q.memref}, vector<32xi8>"]
        if self.planes == 1:
            return [*lines, f"%{name} = arith.extsi %{name}_bytes : vector<32xi8> to {wide}"]
        return [
            *lines,
            f"%{name}_second_at = arith.addi {place}, %c{self.columns} : index",
            f"%{name}_second_bytes = vector.load %q[%{name}_second_at] : {self.q.memref}, vector<32xi8>",
            f"%{name}_first = arith.extsi %{name}_bytes : vector<32xi8> to {words}",
            f"%{name}_second = arith.extsi %{name}_second_bytes : vector<32xi8> to {words}",
            f"%{name}_base = arith.constant dense<{PLANE_BASE}> : {words}",
            f"%{name}_upper = arith.muli %{name}_first, %{name}_base : {words}",
            f"%{name}_words = arith.addi %{name}_upper, %{name}_second : {words}",
            f"%{name} = arith.extsi %{name}_words : {words} to {wide}",
        ]


NAME: Final = "vector"
_EIGHT: Final = "vector<8xf32>"


def vector_kernel(rows: int, outputs: int, columns: int, encoding: Encoding, dtype: str, planes: int) -> CpuKernel:
    """Builds q i8 [rows, planes, columns], scale f32, total i32 [rows, columns / 32], w: y [rows, outputs]."""
    buffers = packed_buffers(rows, outputs, columns, encoding, dtype, planes)
    x = XPlanes(buffers[0], planes, columns)
    supers, size, blocks = columns // encoding.block, encoding.block_bytes, columns // BLOCK
    row_count, workgroups = share(outputs, 1, wanted_workgroups(buffers[3].elements))
    w = buffers[3].memref
    is_super = encoding.block > BLOCK
    before, inner = (_k_constants(encoding), _super_block) if is_super else (_constants(encoding), _block)
    numbers = [
        1,
        2,
        8,
        BLOCK,
        planes * columns,
        encoding.block,
        size,
        supers,
        supers * size,
        columns,
        blocks,
        row_count,
        outputs,
        rows,
    ]
    numbers += [*range(0, encoding.block, BLOCK), encoding.layout.planes[0].at]
    numbers += super_block_numbers(encoding) if is_super else []
    body = f"""\
{constants(numbers)}
{indented(before, 0)}
%none = arith.constant dense<0.0> : {_EIGHT}
{own_rows(row_count, outputs)}
scf.for %row = %first to %end step %c1 {{
  %begin = arith.muli %row, %c{supers * size} : index
  scf.for %token = %c0 to %c{rows} step %c1 {{
    %x_begin = arith.muli %token, %c{planes * columns} : index
    %s_begin = arith.muli %token, %c{blocks} : index
    %made = scf.for %block = %c0 to %c{supers} step %c1 iter_args(%sum = %none) -> ({_EIGHT}) {{
      %in_row = arith.muli %block, %c{size} : index
      %at = arith.addi %begin, %in_row : index
{indented(inner(rows, x, encoding, w), 6)}
      scf.yield %next : {_EIGHT}
    }}
    %y_row = vector.reduction <add>, %made : {_EIGHT} into f32
    %line = arith.muli %token, %c{outputs} : index
    %place = arith.addi %line, %row : index
{indented(stored("y_row", "%place", buffers[-1]), 4)}
  }}
}}
"""
    return CpuKernel(NAME, buffers, workgroups, body)


def _constants(encoding: Encoding) -> list[str]:
    return [
        "%nibble = arith.constant dense<15> : vector<16xi8>",
        f"%offset = arith.constant dense<{unsigned_offset(encoding)}> : vector<32xi8>",
        "%four = arith.constant dense<4> : vector<16xi8>",
    ]


def _block(rows: int, x: XPlanes, encoding: Encoding, w: str) -> list[str]:
    """Makes ``%next`` of ``%sum`` and the products of a block of 32."""
    return [
        f"%q_at = arith.addi %at, %c{encoding.layout.planes[0].at} : index",
        *block_scale(encoding, "%at", "w_scale", w),
        *signed_block(encoding, "%at", "%q_at", "signed", w),
        f"%in_x = arith.muli %block, %c{BLOCK} : index",
        "%x_at = arith.addi %x_begin, %in_x : index",
        "%s_at = arith.addi %s_begin, %block : index",
        *x.block("x_wide", "%x_at"),
        *_products("", "%signed"),
        "%dot = arith.addi %low, %high : vector<8xi32>",
        f"%dot_float = arith.sitofp %dot : vector<8xi32> to {_EIGHT}",
        f"%x_scale = memref.load %scale[%s_at] : memref<{rows * (x.columns // BLOCK)}xf32>",
        "%both = arith.mulf %w_scale, %x_scale : f32",
        f"%all = vector.broadcast %both : f32 to {_EIGHT}",
        *_with_minimum(rows * (x.columns // BLOCK), encoding, w),
        f"%next = math.fma %dot_float, %all, {'%sum' if encoding.layout.minimum is None else '%more'} : {_EIGHT}",
    ]


def _with_minimum(blocks: int, encoding: Encoding, w: str) -> list[str]:
    """Makes ``%more`` of ``%sum`` and, on one lane, the minimum of a block times the sum of x, if it has one."""
    if encoding.layout.minimum is None:
        return []
    return [
        *block_minimum(encoding, "%at", "least", w),
        f"%total_int = memref.load %total[%s_at] : memref<{blocks}xi32>",
        "%total_float = arith.sitofp %total_int : i32 to f32",
        "%x_sum = arith.mulf %total_float, %x_scale : f32",
        "%least_sum = arith.mulf %least, %x_sum : f32",
        f"%lane = vector.insert %least_sum, %none[0] : f32 into {_EIGHT}",
        f"%more = arith.addf %sum, %lane : {_EIGHT}",
    ]


def _k_constants(encoding: Encoding) -> list[str]:
    above = f"%above = arith.constant dense<{encoding.layout.offset}> : vector<{CHUNK}xi8>"
    return [*super_block_constants(encoding), above]


def _super_block(rows: int, x: XPlanes, encoding: Encoding, w: str) -> list[str]:
    """Makes ``%next`` of ``%sum`` and the products of a super-block: less all minima, then part after part."""
    layout, blocks = encoding.layout, encoding.block // BLOCK
    parts = BLOCK // layout.scaled  # of a block of 32
    of_blocks = layout.minimum is not None and parts == 1
    lines = [
        f"%in_x = arith.muli %block, %c{encoding.block} : index",
        "%x_at = arith.addi %x_begin, %in_x : index",
        f"%in_scales = arith.muli %block, %c{blocks} : index",
        "%s_at = arith.addi %s_begin, %in_scales : index",
        f"%xs = vector.load %scale[%s_at] : memref<{rows * (x.columns // BLOCK)}xf32>, {_EIGHT}",
        *part_scales(encoding, "", w),
        *(_less_minima(rows, x.columns) if of_blocks else _factors(parts)),
    ]
    of_parts = layout.minimum is not None and parts > 1
    lines += [*part_minima(encoding, "", w), *_minus()] if of_parts else []
    terms: list[tuple[str, str, int]] = []
    steps: list[list[str]] = []
    for block in range(blocks):
        of_block, integers = _integers(block, encoding, w)
        of_block += _chunk_half(block, integers, x)
        dots = [f"%low{block}", f"%high{block}"]
        if parts == 1:
            of_block.append(f"%dot{block} = arith.addi {dots[0]}, {dots[1]} : vector<8xi32>")
            dots = [f"%dot{block}"]
        terms += [(dot, "%factors", part) for part, dot in enumerate(dots, parts * block)]
        steps += [of_block, *[[]] * (len(dots) - 1)]
        if of_parts:
            terms += [(f"%x_{side}{block}", "%minus", parts * block + i) for i, side in enumerate(("low", "high"))]
            steps += [_sums_of_x(block), []]
    sums = ["%less" if of_blocks else "%sum", *(f"%sum_{i}" for i in range(len(terms) - 1)), "%next"]
    kind = _EIGHT if parts == 1 else "vector<16xf32>"
    for i, ((dot, factors, part), step) in enumerate(zip(terms, steps, strict=True)):
        lines += [*step, *_added(dot, part, factors, kind, sums[i], sums[i + 1])]
    return lines


def _integers(block: int, encoding: Encoding, w: str) -> tuple[list[str], str]:
    """Returns lines that make the values of a chunk's integers, with its first block of 32, and their name."""
    layout, (chunk, side) = encoding.layout, divmod(block, 2)
    lines, integers = [], f"%u_{chunk}"
    if side == 0 and chunk % chunks_of_group(layout) == 0:
        lines += group_integers(encoding, "", chunk // chunks_of_group(layout), w)
    if layout.offset:
        integers = f"%signed{chunk}"
        lines += [] if side else [f"{integers} = arith.subi %u_{chunk}, %above : vector<{CHUNK}xi8>"]
    if layout.table is not None:
        integers = f"%signed{chunk}"
        lines += [] if side else looked_up(layout.table, f"%u_{chunk}", f"signed{chunk}", CHUNK)
    return lines, integers


def _minus() -> list[str]:
    """Makes ``%minus`` vector<16xf32>: minima of parts times x's scales, negated."""
    return [
        "%minima = arith.mulf %least, %x_scales : vector<16xf32>",
        "%minus = arith.negf %minima : vector<16xf32>",
    ]


def _sums_of_x(block: int) -> list[str]:
    """Makes ``%x_low<block>`` and ``%x_high<block>`` vector<8xi32>: sums of two of the first and last sixteen of x."""
    wide, lines = "vector<32xi32>", []
    for side, first in (("low", 0), ("high", 16)):
        name = f"%x_{side}{block}"
        for word, begin in (("a", first), ("b", first + 8)):
            lanes = listed(range(begin, begin + 8))
            lines.append(f"{name}_{word} = vector.shuffle %x_wide{block}, %x_wide{block} {lanes} : {wide}, {wide}")
        lines.append(f"{name} = arith.addi {name}_a, {name}_b : vector<8xi32>")
    return lines


def _less_minima(rows: int, columns: int) -> list[str]:
    """Makes ``%factors``, scales times x's, and ``%less``, the sum less minima times the sums of x."""
    low, high = listed(range(8)), listed(range(8, 16))
    return [
        f"%scales = vector.shuffle %scaled, %scaled {low} : vector<16xf32>, vector<16xf32>",
        f"%minima = vector.shuffle %scaled, %scaled {high} : vector<16xf32>, vector<16xf32>",
        f"%factors = arith.mulf %scales, %xs : {_EIGHT}",
        f"%totals = vector.load %total[%s_at] : memref<{rows * (columns // BLOCK)}xi32>, vector<8xi32>",
        f"%total_floats = arith.sitofp %totals : vector<8xi32> to {_EIGHT}",
        f"%x_sums = arith.mulf %total_floats, %xs : {_EIGHT}",
        f"%least = arith.mulf %minima, %x_sums : {_EIGHT}",
        f"%less = arith.subf %sum, %least : {_EIGHT}",
    ]


def _factors(parts: int) -> list[str]:
    """Makes ``%factors``, the scales of each block's parts times x's: vector<16xf32>, or vector<8xf32> of one part."""
    if parts == 1:
        few = listed(range(8))
        return [
            f"%scales = vector.shuffle %scaled, %scaled {few} : vector<16xf32>, vector<16xf32>",
            f"%factors = arith.mulf %scales, %xs : {_EIGHT}",
        ]
    spread = listed([block for block in range(16 // parts) for _ in range(parts)])
    return [
        f"%x_scales = vector.shuffle %xs, %xs {spread} : {_EIGHT}, {_EIGHT}",
        "%factors = arith.mulf %scaled, %x_scales : vector<16xf32>",
    ]


def _chunk_half(block: int, integers: str, x: XPlanes) -> list[str]:
    """Makes ``%low<block>`` and ``%high<block>`` of a block of x and its half of a chunk, vector<64xi8>.

    Args:
        block: number of the block in the super-block.
        integers: name of the chunk.
        x: x.
    """
    lanes = listed(range(BLOCK * (block % 2), BLOCK * (block % 2) + BLOCK))
    return [
        f"%xq_at{block} = arith.addi %x_at, %c{BLOCK * block} : index",
        *x.block(f"x_wide{block}", f"%xq_at{block}"),
        f"%w{block} = vector.shuffle {integers}, {integers} {lanes} : vector<64xi8>, vector<64xi8>",
        *_products(f"{block}", f"%w{block}"),
    ]


def _products(n: str, w: str) -> list[str]:
    """Makes ``%low<n>`` and ``%high<n>`` vector<8xi32>: sums of two of the first and of the last sixteen products."""
    wide = "vector<32xi32>"
    return [
        f"%w_wide{n} = arith.extsi {w} : vector<32xi8> to {wide}",
        f"%products{n} = arith.muli %x_wide{n}, %w_wide{n} : {wide}",
        f"%even{n} = vector.shuffle %products{n}, %products{n} {listed(range(0, 32, 2))} : {wide}, {wide}",
        f"%odd{n} = vector.shuffle %products{n}, %products{n} {listed(range(1, 32, 2))} : {wide}, {wide}",
        f"%pairs{n} = arith.addi %even{n}, %odd{n} : vector<16xi32>",
        f"%low{n} = vector.shuffle %pairs{n}, %pairs{n} {listed(range(8))} : vector<16xi32>, vector<16xi32>",
        f"%high{n} = vector.shuffle %pairs{n}, %pairs{n} {listed(range(8, 16))} : vector<16xi32>, vector<16xi32>",
    ]


def _added(dot: str, part: int, factors: str, kind: str, before: str, after: str) -> list[str]:
    """Makes ``after`` of ``before`` and integers, times a part's entry of ``factors``, of type ``kind``."""
    name = after.removeprefix("%")
    return [
        f"%float_{name} = arith.sitofp {dot} : vector<8xi32> to {_EIGHT}",
        f"%factor_{name} = vector.extract {factors}[{part}] : f32 from {kind}",
        f"%all_{name} = vector.broadcast %factor_{name} : f32 to {_EIGHT}",
        f"{after} = math.fma %float_{name}, %all_{name}, {before} : {_EIGHT}",
    ]
