"""Products of panels of super-blocks with tokens, for CPUs with AVX-512 VNNI.

Integers with minima are unsigned, and x is signed. Integers with an offset are signed in the panel, for which x has to
be unsigned: 128 is added to it, once for each panel, and taken out with the sums of the weights' integers, where a sum
begins.
"""

from typing import Final

from lang_core import BLOCK
from run_iree.kernels._instruction_sets import vnni_dot
from run_iree.kernels._vnni_panel import ROWS, TOKENS, WORDS, Sizes, panel_word, token_word

BLOCK_WORDS: Final = ROWS * WORDS
SIXTEEN: Final = "vector<16xf32>"


def minima_block(tag: str, count: int, sizes: Sizes) -> list[str]:
    """Multiplies a block of sixteen rows by that of each token; the minima meet the sums of its integers."""
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
            *_x_scale(t, tag, blocks),
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
        lines += _scaled(f"{t}", f"%dot{t}_{WORDS}", f"%xs_all{t}", "%ws", f"%least{t}", f"%{tag}_next{t}")
    return lines


def flipped(sizes: Sizes) -> str:
    """Returns the type of ``%flipped``, the unsigned integers of the tokens."""
    return f"memref<{TOKENS * sizes.chunk * BLOCK}xi8>"


def flipped_x(tag: str, count: int, sizes: Sizes) -> list[str]:
    """Stores the chunk's integers of the tokens to ``%flipped``, unsigned."""
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
            f"  vector.store %made{t}, %flipped[%to{t}] : {flipped(sizes)}, vector<64xi8>",
        ]
    return [*lines, "}"]


def offset_block(tag: str, count: int, sizes: Sizes) -> list[str]:
    """Multiplies a block of sixteen rows by that of each token, one half after the other, each with its own scale."""
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
            *_x_scale(t, tag, sizes.rows * (sizes.columns // BLOCK)),
        ]
    for word in range(WORDS):
        half = word // 4
        lines += panel_word(word, sizes)
        for t in range(count):
            before = f"%dot{t}_{word}" if word % 4 else f"%begin{half}"
            lines += token_word(t, word, "%flipped", flipped(sizes))
            lines.append(f"%dot{t}_{word + 1} = {vnni_dot(before, f'%x{t}_{word}', f'%p{word}')}")
        for t in range(count) if word % 4 == 3 else ():
            sums = (f"%{tag}_sum{t}", f"%half_sum{t}", f"%{tag}_next{t}")
            lines += _scaled(f"{t}_{half}", f"%dot{t}_{word + 1}", f"%xs_all{t}", f"%ws{half}", *sums[half : half + 2])
    return lines


def _x_scale(t: int, tag: str, blocks: int) -> list[str]:
    """Makes ``%xs_all<t>``, the scale of a token's block ``%of_row`` on all lanes, and ``%xs<t>`` f32."""
    return [
        f"%s{t} = arith.addi %{tag}_srow{t}, %of_row : index",
        f"%xs{t} = memref.load %scale[%s{t}] : memref<{blocks}xf32>",
        f"%xs_all{t} = vector.broadcast %xs{t} : f32 to {SIXTEEN}",
    ]


def _scaled(name: str, dot: str, x: str, w: str, before: str, after: str) -> list[str]:
    """Makes ``after`` of ``before`` and integers, times both scales."""
    return [
        f"%float{name} = arith.sitofp {dot} : vector<16xi32> to {SIXTEEN}",
        f"%both{name} = arith.mulf {w}, {x} : {SIXTEEN}",
        f"{after} = math.fma %float{name}, %both{name}, {before} : {SIXTEEN}",
    ]
