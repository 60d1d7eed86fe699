"""What panels of super-blocks share: blocks of 32 of whole super-blocks, and what scales them, in f32."""

from collections.abc import Callable, Sequence
from typing import Final

from lang_core import Encoding
from run_iree.kernels._text import listed, within
from run_iree.kernels._vnni_panel import ROWS, WORDS, Sizes, transposed

SUPER_BLOCKS: Final = 8  # blocks of a super-block
BLOCK_WORDS: Final = ROWS * WORDS
ZEROS: Final = "%zeros = arith.constant dense<0> : vector<16xi32>"
SIXTEEN: Final = "vector<16xf32>"


def supers(sizes: Sizes, encoding: Encoding, scales: Callable[[int], list[str]], then: Sequence[str]) -> list[str]:
    """A loop over the chunk's super-blocks: ``%at<r>`` and ``%scaled<r>`` of sixteen rows, then other lines.

    ``%of_chunk`` is a super-block's first block.
    """
    row_bytes = sizes.columns // encoding.block * encoding.block_bytes
    lines = [
        f"%of_chunk = arith.muli %super, %c{SUPER_BLOCKS} : index",
        "%of_row = arith.addi %chunk, %of_chunk : index",
        f"%super_of_row = arith.divui %of_row, %c{SUPER_BLOCKS} : index",
        f"%in_row = arith.muli %super_of_row, %c{encoding.block_bytes} : index",
    ]
    for r in range(ROWS):
        lines += [
            f"%row{r} = arith.addi %row, %c{r} : index",
            f"%row_at{r} = arith.muli %row{r}, %c{row_bytes} : index",
            f"%at{r} = arith.addi %row_at{r}, %in_row : index",
            *scales(r),
            f"%scale_words{r} = vector.bitcast %scaled{r} : {SIXTEEN} to vector<16xi32>",
        ]
    head = f"scf.for %super = %c0 to %c{sizes.chunk // SUPER_BLOCKS} step %c1 {{"
    return [head, *within([*lines, *then]), "}"]


def turned_scales(lanes: range, scratch: str, sizes: Sizes, tag: str) -> list[str]:
    """Lanes of the rows' scales into scratch: for each block of the super-block (or half of one) those of all rows.

    Args:
        lanes: eight, or all sixteen, which are two for each block.
        scratch: where to.
        sizes: the product's.
        tag: what names of values have.
    """
    each = len(lanes) // SUPER_BLOCKS
    lines = [f"%{tag}_at = arith.muli %of_chunk, %c{ROWS * each} : index"]
    for part in range(each):
        mask, of = listed(lanes[8 * part : 8 * part + 8]), f"{tag}{part}_"
        halves = []
        for r in range(ROWS):
            halves.append(f"%{of}half{r}")
            words = f"%scale_words{r}"
            lines.append(f"{halves[-1]} = vector.shuffle {words}, {words} {mask} : vector<16xi32>, vector<16xi32>")
        turned, more = transposed(halves, of)
        lines += more
        for number, name in enumerate(turned):
            place = f"%{of}place{number}"
            lines += [
                f"%{of}step{number} = arith.addi %{tag}_at, %c{ROWS * (8 * part + number)} : index",
                f"{place} = vector.bitcast {name} : vector<16xi32> to {SIXTEEN}",
                f"vector.store {place}, %{scratch}[%{of}step{number}] : {sizes.scratch(each)}, {SIXTEEN}",
            ]
    return lines


def x_scale(t: int, tag: str, blocks: int) -> list[str]:
    """``%xs<t>`` f32, the scale of a token's block ``%of_row``, and the same on all lanes; there are so many scales."""
    return [
        f"%s{t} = arith.addi %{tag}_srow{t}, %of_row : index",
        f"%xs{t} = memref.load %scale[%s{t}] : memref<{blocks}xf32>",
        f"%xs_all{t} = vector.broadcast %xs{t} : f32 to {SIXTEEN}",
    ]


def scaled(name: str, dot: str, x: str, w: str, before: str, after: str) -> list[str]:
    """``after`` is ``before`` and integers, times both scales."""
    return [
        f"%float{name} = arith.sitofp {dot} : vector<16xi32> to {SIXTEEN}",
        f"%both{name} = arith.mulf {w}, {x} : {SIXTEEN}",
        f"{after} = math.fma %float{name}, %both{name}, {before} : {SIXTEEN}",
    ]
