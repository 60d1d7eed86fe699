"""Panels of Q6_K for several tokens: two scales for each block and row.

The integers stay signed, for which x has to be unsigned: 128 is added to it, once for each panel, and taken out with
the sums of the weights' integers, where a sum begins.
"""

from collections.abc import Sequence

from lang_core import BLOCK, Encoding
from run_iree.kernels._k_row import Q6_K_BEFORE, Q6_K_NUMBERS, q6_k_scales, q6_k_side
from run_iree.kernels._text import listed, within
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
    TOKENS,
    WORDS,
    Panel,
    Sizes,
    panel_stores,
    panel_word,
    token_word,
    transposed,
)


def q6_k_panel(sizes: Sizes, encoding: Encoding) -> Panel:
    """Of Q6_K."""
    row_bytes = sizes.columns // encoding.block * encoding.block_bytes
    w = f"memref<{sizes.outputs * row_bytes}xi8>"
    before = [
        *Q6_K_BEFORE,
        ZEROS,
        "%above = arith.constant dense<32> : vector<32xi8>",
        "%flip = arith.constant dense<-128> : vector<64xi8>",
        f"%w_scale = memref.alloca() : {sizes.scratch(2)}",
        f"%w_sum = memref.alloca() : {sizes.scratch(2, 'i32')}",
        f"%flipped = memref.alloca() : {_flipped(sizes)}",
    ]
    pack = supers(
        sizes,
        encoding,
        lambda r: q6_k_scales(r, w),
        [
            *turned_scales(range(16), "w_scale", sizes, "all"),
            "scf.for %side = %c0 to %c2 step %c1 {",
            *within(_q6_k_half(sizes, w)),
            "}",
        ],
    )
    span = sizes.chunk * BLOCK
    numbers = [2, 4, SUPER_BLOCKS, 64, 128, 2 * ROWS, BLOCK_WORDS, encoding.block_bytes, sizes.chunk // SUPER_BLOCKS]
    numbers += [*Q6_K_NUMBERS, *(ROWS * number for number in range(16)), *(span * t for t in range(TOKENS))]
    return Panel(
        numbers,
        before,
        pack,
        lambda tag, count: _flipped_x(tag, count, sizes),
        lambda tag, count: _q6_k_block(tag, count, sizes),
    )


def _flipped(sizes: Sizes) -> str:
    return f"memref<{TOKENS * sizes.chunk * BLOCK}xi8>"


def _q6_k_half(sizes: Sizes, w: str) -> list[str]:
    """Four blocks of sixteen rows, and what their integers, times 128, begin a sum with."""
    kind = "vector<32xi8>"
    lines = [
        "%in_low = arith.muli %side, %c64 : index",
        "%in_high_bits = arith.muli %side, %c32 : index",
        "%in_high = arith.addi %in_high_bits, %c128 : index",
        "%blocks_on = arith.muli %side, %c4 : index",
        "%block0 = arith.addi %of_chunk, %blocks_on : index",
    ]
    for r in range(ROWS):
        lines += [
            f"%low_at{r} = arith.addi %at{r}, %in_low : index",
            f"%high_at{r} = arith.addi %at{r}, %in_high : index",
            *q6_k_side(r, 0, f"%low_at{r}", f"%high_at{r}", w),
        ]
        for block in range(4):
            part = listed(range(32 * (block % 2), 32 * (block % 2) + 32))
            name = f"{block}_{r}"
            lines += [
                f"%u{name}_half = vector.shuffle %u{r}_{block // 2}, %u{r}_{block // 2} {part} : "
                "vector<64xi8>, vector<64xi8>",
                f"%signed{name} = arith.subi %u{name}_half, %above : {kind}",
                f"%q{name} = vector.bitcast %signed{name} : {kind} to vector<8xi32>",
            ]
    for block in range(4):
        turned, more = transposed([f"%q{block}_{r}" for r in range(ROWS)], f"q{block}_")
        lines += [f"%block{block} = arith.addi %block0, %c{block} : index"] if block else []
        lines += [
            f"%panel_at{block} = arith.muli %block{block}, %c{BLOCK_WORDS} : index",
            *more,
            *panel_stores(turned, sizes, f"{block}"),
            *_sums(block, turned, sizes),
        ]
    return lines


def _sums(block: int, words: Sequence[str], sizes: Sizes) -> list[str]:
    """Minus 128 times the sums of a block's halves, for each row."""
    kind = sizes.scratch(2, "i32")
    lines = [f"%sums_at{block} = arith.muli %block{block}, %c{2 * ROWS} : index"]
    for half in range(2):
        before = "%zeros"
        for word in range(4):
            name = f"{block}_{half}_{word}"
            lines += [
                f"%bytes{name} = vector.bitcast {words[4 * half + word]} : vector<16xi32> to vector<64xi8>",
                f"%sum{name} = {vnni_dot(before, '%flip', f'%bytes{name}')}",
            ]
            before = f"%sum{name}"
        lines += [
            f"%less{block}_{half} = arith.subi %zeros, {before} : vector<16xi32>",
            f"%sum_at{block}_{half} = arith.addi %sums_at{block}, %c{ROWS * half} : index",
            f"vector.store %less{block}_{half}, %w_sum[%sum_at{block}_{half}] : {kind}, vector<16xi32>",
        ]
    return lines


def _flipped_x(tag: str, count: int, sizes: Sizes) -> list[str]:
    """The chunk's integers of the tokens, unsigned."""
    x, span = f"memref<{sizes.rows * sizes.columns}xi8>", sizes.chunk * BLOCK
    lines = [
        f"%{tag}_chunk_at = arith.muli %chunk, %c{BLOCK} : index",
        f"scf.for %flip_at = %c0 to %c{span} step %c64 {{",
        f"  %in_x = arith.addi %{tag}_chunk_at, %flip_at : index",
    ]
    for t in range(count):
        lines += [
            f"  %from{t} = arith.addi %{tag}_xrow{t}, %in_x : index",
            f"  %given{t} = vector.load %q[%from{t}] : {x}, vector<64xi8>",
            f"  %made{t} = arith.xori %given{t}, %flip : vector<64xi8>",
            f"  %to{t} = arith.addi %flip_at, %c{span * t} : index",
            f"  vector.store %made{t}, %flipped[%to{t}] : {_flipped(sizes)}, vector<64xi8>",
        ]
    return [*lines, "}"]


def _q6_k_block(tag: str, count: int, sizes: Sizes) -> list[str]:
    """One block of sixteen rows times that of each token, a half after the other."""
    span = sizes.chunk * BLOCK
    lines = [
        "%of_row = arith.addi %chunk, %block : index",
        f"%x_at = arith.muli %block, %c{BLOCK} : index",
        f"%panel_at = arith.muli %block, %c{BLOCK_WORDS} : index",
        f"%scales_at0 = arith.muli %block, %c{2 * ROWS} : index",
        f"%scales_at1 = arith.addi %scales_at0, %c{ROWS} : index",
    ]
    for half in range(2):
        lines += [
            f"%ws{half} = vector.load %w_scale[%scales_at{half}] : {sizes.scratch(2)}, {SIXTEEN}",
            f"%begin{half} = vector.load %w_sum[%scales_at{half}] : {sizes.scratch(2, 'i32')}, vector<16xi32>",
        ]
    for t in range(count):
        lines += [
            f"%x{t} = arith.addi %x_at, %c{span * t} : index",
            *x_scale(t, tag, sizes.rows * (sizes.columns // BLOCK)),
        ]
    for word in range(WORDS):
        half = word // 4
        lines += panel_word(word, sizes)
        for t in range(count):
            before = f"%dot{t}_{word}" if word % 4 else f"%begin{half}"
            lines += token_word(t, word, "%flipped", _flipped(sizes))
            lines.append(f"%dot{t}_{word + 1} = {vnni_dot(before, f'%x{t}_{word}', f'%p{word}')}")
        for t in range(count) if word % 4 == 3 else ():
            sums = (f"%{tag}_sum{t}", f"%half_sum{t}", f"%{tag}_next{t}")
            lines += scaled(f"{t}_{half}", f"%dot{t}_{word + 1}", f"%xs_all{t}", f"%ws{half}", *sums[half : half + 2])
    return lines
