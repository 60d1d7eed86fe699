"""Products with super-blocks for CPUs of any kind: vectors that every compiler backend takes apart."""

from lang_core import BLOCK, Encoding
from run_iree.kernels._k_row import (
    Q4_K_BEFORE,
    Q4_K_NUMBERS,
    Q6_K_BEFORE,
    Q6_K_NUMBERS,
    q4_k_integers,
    q4_k_scales,
    q6_k_integers,
    q6_k_scales,
)
from run_iree.kernels._packed_row import packed_buffers
from run_iree.kernels._text import (
    Kernel,
    constants,
    indented,
    listed,
    own_rows,
    share,
    stored,
    wanted_workgroups,
)
from run_iree.kernels._vector import NAME

_EIGHT = "vector<8xf32>"


def k_vector_kernel(rows: int, outputs: int, columns: int, encoding: Encoding, dtype: str) -> Kernel:
    """q i8 [rows, columns], scale f32, total i32 [rows, columns / 32], w [outputs, bytes]: y [rows, outputs]."""
    buffers = packed_buffers(rows, outputs, columns, encoding, dtype)
    supers, size, blocks = columns // encoding.block, encoding.block_bytes, columns // BLOCK
    each, workgroups = share(outputs, 1, wanted_workgroups(buffers[3].elements))
    w = f"memref<{outputs * supers * size}xi8>"
    before, inner = (Q4_K_BEFORE, _q4_k) if encoding.name == "q4_k" else (Q6_K_BEFORE, _q6_k)
    numbers = [1, 8, encoding.block, size, supers, supers * size, columns, blocks, each, outputs, rows]
    numbers += [*range(0, encoding.block, BLOCK), *Q4_K_NUMBERS, *Q6_K_NUMBERS]
    body = f"""\
{constants(numbers)}
{indented(before, 0)}
%above = arith.constant dense<32> : vector<64xi8>
%none = arith.constant dense<0.0> : {_EIGHT}
{own_rows(each, outputs)}
scf.for %row = %first to %end step %c1 {{
  %begin = arith.muli %row, %c{supers * size} : index
  scf.for %token = %c0 to %c{rows} step %c1 {{
    %x_begin = arith.muli %token, %c{columns} : index
    %s_begin = arith.muli %token, %c{blocks} : index
    %made = scf.for %super = %c0 to %c{supers} step %c1 iter_args(%sum = %none) -> ({_EIGHT}) {{
      %in_row = arith.muli %super, %c{size} : index
      %at0 = arith.addi %begin, %in_row : index
      %in_x = arith.muli %super, %c{encoding.block} : index
      %x_at = arith.addi %x_begin, %in_x : index
      %in_scales = arith.muli %super, %c8 : index
      %s_at = arith.addi %s_begin, %in_scales : index
      %xs = vector.load %scale[%s_at] : memref<{rows * blocks}xf32>, {_EIGHT}
{indented(inner(rows, columns, w), 6)}
      scf.yield %next : {_EIGHT}
    }}
    %found = vector.reduction <add>, %made : {_EIGHT} into f32
    %line = arith.muli %token, %c{outputs} : index
    %place = arith.addi %line, %row : index
{indented(stored("found", "%place", buffers[-1]), 4)}
  }}
}}
"""
    return Kernel(NAME, buffers, workgroups, body)


def _q4_k(rows: int, columns: int, w: str) -> list[str]:
    """``%next`` of ``%sum``: less the minima of all sub-blocks, then one after the other."""
    low, high = listed(range(8)), listed(range(8, 16))
    lines = [
        *q4_k_scales(0, w),
        f"%scales = vector.shuffle %scaled0, %scaled0 {low} : vector<16xf32>, vector<16xf32>",
        f"%minima = vector.shuffle %scaled0, %scaled0 {high} : vector<16xf32>, vector<16xf32>",
        f"%factors = arith.mulf %scales, %xs : {_EIGHT}",
        f"%totals = vector.load %total[%s_at] : memref<{rows * (columns // BLOCK)}xi32>, vector<8xi32>",
        f"%total_floats = arith.sitofp %totals : vector<8xi32> to {_EIGHT}",
        f"%x_sums = arith.mulf %total_floats, %xs : {_EIGHT}",
        f"%least = arith.mulf %minima, %x_sums : {_EIGHT}",
        f"%less = arith.subf %sum, %least : {_EIGHT}",
    ]
    sums = ["%less", *(f"%sum_{block}" for block in range(7)), "%next"]
    for block in range(8):
        if block % 2 == 0:
            lines += q4_k_integers(0, block // 2, w)
        lines += [
            *_products(block, f"%u0_{block // 2}", rows * columns),
            f"%dot{block} = arith.addi %low{block}, %high{block} : vector<8xi32>",
            *_added(f"%dot{block}", f"%factors[{block}] : f32 from {_EIGHT}", sums[block], sums[block + 1]),
        ]
    return lines


def _q6_k(rows: int, columns: int, w: str) -> list[str]:
    """The same without minima, and with a scale for each sixteen."""
    twice, factors = listed([each for block in range(8) for each in (block, block)]), "vector<16xf32>"
    lines = [
        *q6_k_scales(0, w),
        f"%x_scales = vector.shuffle %xs, %xs {twice} : {_EIGHT}, {_EIGHT}",
        f"%factors = arith.mulf %scaled0, %x_scales : {factors}",
    ]
    sums = ["%sum", *(f"%sum_{part}" for part in range(15)), "%next"]
    for block in range(8):
        chunk = block // 2
        if block % 4 == 0:
            lines += q6_k_integers(0, chunk // 2, w)
        if block % 2 == 0:
            lines.append(f"%signed{chunk} = arith.subi %u0_{chunk}, %above : vector<64xi8>")
        lines += _products(block, f"%signed{chunk}", rows * columns)
        for part, side in ((2 * block, "low"), (2 * block + 1, "high")):
            lines += _added(f"%{side}{block}", f"%factors[{part}] : f32 from {factors}", sums[part], sums[part + 1])
    return lines


def _products(block: int, integers: str, elements: int) -> list[str]:
    """``%low<block>`` and ``%high<block>`` vector<8xi32>: sums of two of the first and the last sixteen products.

    Args:
        block: of the eight.
        integers: vector<64xi8>, of a pair of blocks.
        elements: of x.
    """
    n, wide = block, "vector<32xi32>"
    half = listed(range(32 * (block % 2), 32 * (block % 2) + 32))
    return [
        f"%xq_at{n} = arith.addi %x_at, %c{BLOCK * block} : index",
        f"%x{n} = vector.load %q[%xq_at{n}] : memref<{elements}xi8>, vector<32xi8>",
        f"%x_wide{n} = arith.extsi %x{n} : vector<32xi8> to {wide}",
        f"%w{n} = vector.shuffle {integers}, {integers} {half} : vector<64xi8>, vector<64xi8>",
        f"%w_wide{n} = arith.extsi %w{n} : vector<32xi8> to {wide}",
        f"%products{n} = arith.muli %x_wide{n}, %w_wide{n} : {wide}",
        f"%even{n} = vector.shuffle %products{n}, %products{n} {listed(range(0, 32, 2))} : {wide}, {wide}",
        f"%odd{n} = vector.shuffle %products{n}, %products{n} {listed(range(1, 32, 2))} : {wide}, {wide}",
        f"%pairs{n} = arith.addi %even{n}, %odd{n} : vector<16xi32>",
        f"%low{n} = vector.shuffle %pairs{n}, %pairs{n} {listed(range(8))} : vector<16xi32>, vector<16xi32>",
        f"%high{n} = vector.shuffle %pairs{n}, %pairs{n} {listed(range(8, 16))} : vector<16xi32>, vector<16xi32>",
    ]


def _added(dot: str, factor: str, before: str, after: str) -> list[str]:
    """``after`` is ``before`` and integers, times an element of a vector."""
    name = after.removeprefix("%")
    return [
        f"%float_{name} = arith.sitofp {dot} : vector<8xi32> to {_EIGHT}",
        f"%factor_{name} = vector.extract {factor}",
        f"%all_{name} = vector.broadcast %factor_{name} : f32 to {_EIGHT}",
        f"{after} = math.fma %float_{name}, %all_{name}, {before} : {_EIGHT}",
    ]
