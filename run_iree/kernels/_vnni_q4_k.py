"""Panels of Q4_K for several tokens: a scale and a minimum for each block and row."""

from lang_core import BLOCK, Encoding
from run_iree.kernels._k_row import Q4_K_BEFORE, q4_k_scales
from run_iree.kernels._text import within
from run_iree.kernels._vnni import vnni_dot
from run_iree.kernels._vnni_k_panel import (
    BLOCK_WORDS,
    SIXTEEN,
    SUPER_BLOCKS,
    ZEROS,
    scaled,
    supers,
    turned_scales,
    x_scale,
)
from run_iree.kernels._vnni_panel import (
    ROWS,
    WORDS,
    Panel,
    Sizes,
    panel_stores,
    panel_word,
    token_word,
    transposed,
)


def q4_k_panel(sizes: Sizes, encoding: Encoding) -> Panel:
    """Of Q4_K."""
    before = [
        *Q4_K_BEFORE,
        ZEROS,
        f"%w_scale = memref.alloca() : {sizes.scratch(1)}",
        f"%w_least = memref.alloca() : {sizes.scratch(1)}",
    ]
    row_bytes = sizes.columns // encoding.block * encoding.block_bytes
    w = f"memref<{sizes.outputs * row_bytes}xi8>"
    pack = supers(
        sizes,
        encoding,
        lambda r: q4_k_scales(r, w),
        [
            *turned_scales(range(8), "w_scale", sizes, "low"),
            *turned_scales(range(8, 16), "w_least", sizes, "high"),
            "scf.for %pair = %c0 to %c4 step %c1 {",
            *within(_q4_k_pair(sizes, w)),
            "}",
        ],
    )
    numbers = (2, 8, 32, BLOCK_WORDS, encoding.block_bytes, sizes.chunk // SUPER_BLOCKS)
    return Panel(numbers, before, pack, lambda *_: [], lambda tag, count: _q4_k_block(tag, count, sizes))


def _q4_k_pair(sizes: Sizes, w: str) -> list[str]:
    """Two blocks of sixteen rows: low nibbles, and high ones."""
    kind = "vector<32xi8>"
    lines = ["%in_pair = arith.muli %pair, %c32 : index", "%in_super = arith.addi %in_pair, %c16 : index"]
    for r in range(ROWS):
        lines += [
            f"%stored_at{r} = arith.addi %at{r}, %in_super : index",
            f"%stored{r} = vector.load %w[%stored_at{r}] : {w}, {kind}",
            f"%nibble0_{r} = arith.andi %stored{r}, %k_nibble : {kind}",
            f"%nibble1_{r} = arith.shrui %stored{r}, %k_four : {kind}",
            f"%q0_{r} = vector.bitcast %nibble0_{r} : {kind} to vector<8xi32>",
            f"%q1_{r} = vector.bitcast %nibble1_{r} : {kind} to vector<8xi32>",
        ]
    lines += ["%blocks_on = arith.muli %pair, %c2 : index", "%block0 = arith.addi %of_chunk, %blocks_on : index"]
    for side in range(2):
        turned, more = transposed([f"%q{side}_{r}" for r in range(ROWS)], f"q{side}_")
        lines += ["%block1 = arith.addi %block0, %c1 : index"] if side else []
        lines += [f"%panel_at{side} = arith.muli %block{side}, %c{BLOCK_WORDS} : index"]
        lines += [*more, *panel_stores(turned, sizes, f"{side}")]
    return lines


def _q4_k_block(tag: str, count: int, sizes: Sizes) -> list[str]:
    """One block of sixteen rows times that of each token; the minima times the sums of its integers."""
    blocks = sizes.rows * (sizes.columns // BLOCK)
    lines = [
        "%of_row = arith.addi %chunk, %block : index",
        f"%x_at = arith.muli %of_row, %c{BLOCK} : index",
        f"%panel_at = arith.muli %block, %c{BLOCK_WORDS} : index",
        f"%scales_at = arith.muli %block, %c{ROWS} : index",
        f"%ws = vector.load %w_scale[%scales_at] : {sizes.scratch(1)}, {SIXTEEN}",
        f"%wm = vector.load %w_least[%scales_at] : {sizes.scratch(1)}, {SIXTEEN}",
    ]
    for t in range(count):
        lines += [
            f"%x{t} = arith.addi %{tag}_xrow{t}, %x_at : index",
            *x_scale(t, tag, blocks),
            f"%total{t} = memref.load %total[%s{t}] : memref<{blocks}xi32>",
            f"%sum_float{t} = arith.sitofp %total{t} : i32 to f32",
            f"%sum_scaled{t} = arith.mulf %sum_float{t}, %xs{t} : f32",
            f"%sum_less{t} = arith.negf %sum_scaled{t} : f32",
            f"%sum_all{t} = vector.broadcast %sum_less{t} : f32 to {SIXTEEN}",
            f"%least{t} = math.fma %wm, %sum_all{t}, %{tag}_sum{t} : {SIXTEEN}",
        ]
    for word in range(WORDS):
        lines += panel_word(word, sizes)
        for t in range(count):
            before = f"%dot{t}_{word}" if word else "%zeros"
            lines += token_word(t, word, "%q", f"memref<{sizes.rows * sizes.columns}xi8>")
            lines.append(f"%dot{t}_{word + 1} = {vnni_dot(before, f'%p{word}', f'%x{t}_{word}')}")
    for t in range(count):
        lines += scaled(f"{t}", f"%dot{t}_{WORDS}", f"%xs_all{t}", "%ws", f"%least{t}", f"%{tag}_next{t}")
    return lines
