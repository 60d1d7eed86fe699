"""Y = X W^T of several tokens with packed weights, for CPUs with AVX-512 VNNI.

Panels of sixteen rows are read by eight tokens together. Here is the loop, and the panel of blocks of 32, where a whole
block is summed before it is scaled; ``_vnni_super_panel.py`` has super-blocks.
"""

from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._instruction_sets import vnni_dot
from run_iree.kernels._packed_row import block_minimum, half, packed_buffers, stored_block, unsigned_offset
from run_iree.kernels._text import (
    CpuKernel,
    constants,
    indented,
    largest_divisor,
    own_rows,
    share,
    wanted_workgroups,
    within,
)
from run_iree.kernels._vnni_panel import (
    ROWS,
    TOKENS,
    WORDS,
    Panel,
    Sizes,
    panel_stores,
    panel_word,
    token_lines,
    token_word,
    transposed,
)
from run_iree.kernels._vnni_super_panel import super_block_panel

NAME: Final = "avx512-vnni-matmul"
# Blocks of K in a panel, at most: 18 to 20 KiB of stack, with x beside it where the integers have an offset.
_CHUNK_BLOCKS: Final = 32
_CHUNK_BLOCKS_BESIDE_X: Final = 16


def matmul_kernel(rows: int, outputs: int, columns: int, encoding: Encoding) -> CpuKernel:
    """Builds q i8 [rows, columns], scale f32, total i32 [rows, columns / 32], w: y f32 [rows, outputs].

    ``outputs`` is a multiple of 16.
    """
    whole = encoding.block // BLOCK
    beside_x = encoding.block > BLOCK and encoding.layout.offset
    most = (_CHUNK_BLOCKS_BESIDE_X if beside_x else _CHUNK_BLOCKS) // whole
    sizes = Sizes(rows, outputs, columns, whole * largest_divisor(columns // encoding.block, most))
    panel = (_block_panel if encoding.block == BLOCK else super_block_panel)(sizes, encoding)
    row_bytes = columns // encoding.block * encoding.block_bytes
    own, workgroups = share(outputs, ROWS, wanted_workgroups(outputs * row_bytes))
    blocks = columns // BLOCK
    numbers = [1, 4, BLOCK, row_bytes, columns, blocks, sizes.chunk, own, outputs, TOKENS, ROWS * WORDS]
    numbers += [*range(ROWS + 1), rows - rows % TOKENS, *(ROWS * word for word in range(WORDS))]
    numbers += [*(4 * word for word in range(WORDS)), *panel.numbers]
    body = f"""\
{constants(numbers)}
{indented(panel.before, 0)}
%none = arith.constant dense<0.0> : vector<16xf32>
%panel = memref.alloca() : {sizes.panel}
{own_rows(own, outputs)}
scf.for %row = %first to %end step %c{ROWS} {{
  scf.for %chunk = %c0 to %c{blocks} step %c{sizes.chunk} {{
{indented(panel.pack, 4)}
    %begins = arith.cmpi eq, %chunk, %c0 : index
{indented(token_lines(sizes, panel), 4)}
  }}
}}
"""
    return CpuKernel(NAME, packed_buffers(rows, outputs, columns, encoding), workgroups, body)


def _block_panel(sizes: Sizes, encoding: Encoding) -> Panel:
    """Returns the panel of blocks of 32, unsigned; their offset is taken out with the sums of x's integers."""
    before = [
        "%flip = arith.constant dense<-128> : vector<32xi8>",
        "%nibble = arith.constant dense<15> : vector<16xi8>",
        "%four = arith.constant dense<4> : vector<16xi8>",
        f"%minus = arith.constant {-unsigned_offset(encoding)} : i32",
        f"%w_scale = memref.alloca() : {sizes.scratch(1)}",
    ]
    if encoding.layout.minimum is not None:
        before.append(f"%w_least = memref.alloca() : {sizes.scratch(1)}")
    pack = [
        f"scf.for %block = %c0 to %c{sizes.chunk} step %c1 {{",
        *within(_pack(sizes, encoding)),
        "}",
    ]
    return Panel(
        (encoding.layout.planes[0].at, encoding.block_bytes),
        before,
        pack,
        lambda *_: [],
        lambda tag, count: _block_lines(tag, count, sizes, encoding),
    )


def _pack(sizes: Sizes, encoding: Encoding) -> list[str]:
    """Stores block ``%block`` of the chunk of sixteen rows, as eight registers of the panel and one of scales."""
    row_bytes = sizes.columns // BLOCK * encoding.block_bytes
    w = f"memref<{sizes.outputs * row_bytes}xi8>"
    lines = [
        "%of_row = arith.addi %chunk, %block : index",
        f"%in_row = arith.muli %of_row, %c{encoding.block_bytes} : index",
    ]
    for r in range(ROWS):
        lines += [
            f"%row{r} = arith.addi %row, %c{r} : index",
            f"%row_at{r} = arith.muli %row{r}, %c{row_bytes} : index",
            f"%at{r} = arith.addi %row_at{r}, %in_row : index",
            f"%q_at{r} = arith.addi %at{r}, %c{encoding.layout.planes[0].at} : index",
            *half(f"half{r}", f"%at{r}", w),
            f"%one_scale{r} = vector.extract %half{r}[0] : f16 from vector<1xf16>",
            *(block_minimum(encoding, f"%at{r}", f"least{r}", w) if encoding.layout.minimum is not None else ()),
            *_unsigned_block(encoding, r, w),
            f"%words{r} = vector.bitcast %unsigned{r} : vector<32xi8> to vector<8xi32>",
        ]
    scales = ", ".join(f"%one_scale{r}" for r in range(ROWS))
    turned, more = transposed([f"%words{r}" for r in range(ROWS)])
    return [
        *lines,
        f"%scales16 = vector.from_elements {scales} : vector<16xf16>",
        "%scales32 = arith.extf %scales16 : vector<16xf16> to vector<16xf32>",
        "%scales_at = arith.muli %block, %c16 : index",
        f"vector.store %scales32, %w_scale[%scales_at] : {sizes.scratch(1)}, vector<16xf32>",
        *(_minima(sizes) if encoding.layout.minimum is not None else ()),
        f"%panel_at = arith.muli %block, %c{ROWS * WORDS} : index",
        *more,
        *panel_stores(turned, sizes),
    ]


def _minima(sizes: Sizes) -> list[str]:
    """Stores the minima of a block of sixteen rows."""
    minima = ", ".join(f"%least{r}" for r in range(ROWS))
    return [
        f"%minima = vector.from_elements {minima} : vector<16xf32>",
        f"vector.store %minima, %w_least[%scales_at] : {sizes.scratch(1)}, vector<16xf32>",
    ]


def _unsigned_block(encoding: Encoding, r: int, w: str) -> list[str]:
    if encoding.bits < 8:
        return stored_block(encoding, f"%at{r}", f"%q_at{r}", f"unsigned{r}", w)
    return [
        *stored_block(encoding, f"%at{r}", f"%q_at{r}", f"signed{r}", w),
        f"%unsigned{r} = arith.xori %signed{r}, %flip : vector<32xi8>",
    ]


def _block_lines(tag: str, count: int, sizes: Sizes, encoding: Encoding) -> list[str]:
    """Multiplies a block of sixteen rows by that of each token."""
    blocks = sizes.rows * (sizes.columns // BLOCK)
    lines = [
        "%of_row = arith.addi %chunk, %block : index",
        f"%x_at = arith.muli %of_row, %c{BLOCK} : index",
        f"%panel_at = arith.muli %block, %c{ROWS * WORDS} : index",
        "%scales_at = arith.muli %block, %c16 : index",
        f"%ws = vector.load %w_scale[%scales_at] : {sizes.scratch(1)}, vector<16xf32>",
    ]
    for t in range(count):
        lines += [
            f"%x{t} = arith.addi %{tag}_xrow{t}, %x_at : index",
            f"%s{t} = arith.addi %{tag}_srow{t}, %of_row : index",
            f"%total{t} = memref.load %total[%s{t}] : memref<{blocks}xi32>",
            f"%offset{t} = arith.muli %total{t}, %minus : i32",
            f"%dot{t}_0 = vector.broadcast %offset{t} : i32 to vector<16xi32>",
        ]
    for word in range(WORDS):
        lines += panel_word(word, sizes)
        for t in range(count):
            lines += token_word(t, word, "%q", f"memref<{sizes.rows * sizes.columns}xi8>")
            lines.append(f"%dot{t}_{word + 1} = {vnni_dot(f'%dot{t}_{word}', f'%p{word}', f'%x{t}_{word}')}")
    for t in range(count):
        lines += [
            f"%float{t} = arith.sitofp %dot{t}_{WORDS} : vector<16xi32> to vector<16xf32>",
            f"%xs{t} = memref.load %scale[%s{t}] : memref<{blocks}xf32>",
            f"%xs_all{t} = vector.broadcast %xs{t} : f32 to vector<16xf32>",
            f"%both{t} = arith.mulf %ws, %xs_all{t} : vector<16xf32>",
        ]
        before = f"%{tag}_sum{t}"
        if encoding.layout.minimum is not None:
            lines += _with_minima(t, before, sizes)
            before = f"%more{t}"
        lines.append(f"%{tag}_next{t} = math.fma %float{t}, %both{t}, {before} : vector<16xf32>")
    return lines


def _with_minima(t: int, before: str, sizes: Sizes) -> list[str]:
    """Makes ``%more<t>`` of the sums before and the minima times the sum of a token's block."""
    return [
        f"%wm{t} = vector.load %w_least[%scales_at] : {sizes.scratch(1)}, vector<16xf32>",
        f"%total_float{t} = arith.sitofp %total{t} : i32 to f32",
        f"%x_sum{t} = arith.mulf %total_float{t}, %xs{t} : f32",
        f"%x_sum_all{t} = vector.broadcast %x_sum{t} : f32 to vector<16xf32>",
        f"%more{t} = math.fma %wm{t}, %x_sum_all{t}, {before} : vector<16xf32>",
    ]
