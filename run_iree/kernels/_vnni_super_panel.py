"""Panels of super-blocks for several tokens, for CPUs with AVX-512 VNNI: what fills them.

A panel has blocks of 32 of whole super-blocks. Layouts with minima have a scale and a minimum for each block and row,
those with an offset two scales.
"""

from collections.abc import Sequence
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._instruction_sets import vnni_dot
from run_iree.kernels._sub_scales import part_scales
from run_iree.kernels._super_block import (
    CHUNK,
    chunks_of_group,
    group_bytes,
    group_integers,
    groups,
    super_block_constants,
    super_block_numbers,
)
from run_iree.kernels._text import listed, within
from run_iree.kernels._vnni_panel import ROWS, TOKENS, Panel, Sizes, panel_stores, transposed
from run_iree.kernels._vnni_super_products import (
    BLOCK_WORDS,
    SIXTEEN,
    flipped,
    flipped_x,
    minima_block,
    offset_block,
)

_SUPER_BLOCKS: Final = 8  # blocks of 32 of a super-block
_ZEROS: Final = "%zeros = arith.constant dense<0> : vector<16xi32>"


def super_block_panel(sizes: Sizes, encoding: Encoding) -> Panel:
    """Returns the panel of an encoding of super-blocks."""
    minima = encoding.layout.minimum is not None
    before = [*super_block_constants(encoding), _ZEROS]
    before += _scratch_of_minima(sizes) if minima else _scratch_of_offset(sizes, encoding.layout.offset)
    scales = [("w_scale", range(8)), ("w_least", range(8, 16))] if minima else [("w_scale", range(16))]
    pack = _supers(
        sizes,
        encoding,
        [
            *(line for name, lanes in scales for line in _turned_scales(lanes, name, sizes, name)),
            f"scf.for %group = %c0 to %c{groups(encoding.layout)} step %c1 {{",
            *within(_group(sizes, encoding)),
            "}",
        ],
    )
    return Panel(
        _numbers(sizes, encoding),
        before,
        pack,
        lambda tag, count: [] if minima else flipped_x(tag, count, sizes),
        lambda tag, count: (minima_block if minima else offset_block)(tag, count, sizes),
    )


def _scratch_of_minima(sizes: Sizes) -> list[str]:
    return [f"%{name} = memref.alloca() : {sizes.scratch(1)}" for name in ("w_scale", "w_least")]


def _scratch_of_offset(sizes: Sizes, offset: int) -> list[str]:
    return [
        f"%above = arith.constant dense<{offset}> : vector<32xi8>",
        "%flip = arith.constant dense<-128> : vector<64xi8>",
        f"%w_scale = memref.alloca() : {sizes.scratch(2)}",
        f"%w_sum = memref.alloca() : {sizes.scratch(2, 'i32')}",
        f"%flipped = memref.alloca() : {flipped(sizes)}",
    ]


def _numbers(sizes: Sizes, encoding: Encoding) -> list[int]:
    layout, span = encoding.layout, sizes.chunk * BLOCK
    blocks = 2 * chunks_of_group(layout)
    strides = [blocks * BLOCK * plane.bits // 8 for plane in layout.planes]
    numbers = [_SUPER_BLOCKS, CHUNK, 2 * ROWS, BLOCK_WORDS, encoding.block_bytes, sizes.chunk // _SUPER_BLOCKS]
    numbers += [*super_block_numbers(encoding), *strides, *range(blocks + 1), groups(layout)]
    return numbers + [ROWS * number for number in range(16)] + [span * t for t in range(TOKENS)]


def _weight(sizes: Sizes, encoding: Encoding) -> str:
    """Returns the type of w."""
    return f"memref<{sizes.outputs * (sizes.columns // encoding.block) * encoding.block_bytes}xi8>"


def _supers(sizes: Sizes, encoding: Encoding, then: Sequence[str]) -> list[str]:
    """Loops over the chunk's super-blocks: ``%at<r>`` and ``%scaled<r>`` of sixteen rows, then other lines.

    ``%of_chunk`` is a super-block's first block.
    """
    row_bytes = sizes.columns // encoding.block * encoding.block_bytes
    lines = [
        f"%of_chunk = arith.muli %super, %c{_SUPER_BLOCKS} : index",
        "%of_row = arith.addi %chunk, %of_chunk : index",
        f"%super_of_row = arith.divui %of_row, %c{_SUPER_BLOCKS} : index",
        f"%in_row = arith.muli %super_of_row, %c{encoding.block_bytes} : index",
    ]
    for r in range(ROWS):
        lines += [
            f"%row{r} = arith.addi %row, %c{r} : index",
            f"%row_at{r} = arith.muli %row{r}, %c{row_bytes} : index",
            f"%at{r} = arith.addi %row_at{r}, %in_row : index",
            *part_scales(encoding, r, _weight(sizes, encoding)),
            f"%scale_words{r} = vector.bitcast %scaled{r} : {SIXTEEN} to vector<16xi32>",
        ]
    head = f"scf.for %super = %c0 to %c{sizes.chunk // _SUPER_BLOCKS} step %c1 {{"
    return [head, *within([*lines, *then]), "}"]


def _turned_scales(lanes: range, scratch: str, sizes: Sizes, tag: str) -> list[str]:
    """Stores lanes of the rows' scales to scratch: for each block of a super-block, or half block, those of all rows.

    Args:
        lanes: eight lanes, or all sixteen, which are two for each block.
        scratch: name of the memref.
        sizes: sizes of the product.
        tag: beginning of the names of values.
    """
    parts = len(lanes) // _SUPER_BLOCKS
    lines = [f"%{tag}_at = arith.muli %of_chunk, %c{ROWS * parts} : index"]
    for part in range(parts):
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
                f"vector.store {place}, %{scratch}[%{of}step{number}] : {sizes.scratch(parts)}, {SIXTEEN}",
            ]
    return lines


def _group(sizes: Sizes, encoding: Encoding) -> list[str]:
    """Stores the blocks of group ``%group`` of sixteen rows, and with an offset the sums of their integers."""
    layout, w = encoding.layout, _weight(sizes, encoding)
    blocks = 2 * chunks_of_group(layout)
    columns = blocks * BLOCK
    strides = [columns * plane.bits // 8 for plane in layout.planes for _ in range(0, columns, plane.run)]
    lines, in_super = [], []
    for i, (stride, first) in enumerate(zip(strides, group_bytes(layout, 0), strict=True)):
        lines.append(f"%of_groups{i} = arith.muli %group, %c{stride} : index")
        lines += [f"%in_super{i} = arith.addi %of_groups{i}, %c{first} : index"] if first else []
        in_super.append(f"%in_super{i}" if first else f"%of_groups{i}")
    lines += [
        f"%blocks_on = arith.muli %group, %c{blocks} : index",
        "%block0 = arith.addi %of_chunk, %blocks_on : index",
    ]
    for r in range(ROWS):
        places = [f"%byte{r}_{i}" for i in range(len(strides))]
        lines += [f"{place} = arith.addi %at{r}, {skip} : index" for place, skip in zip(places, in_super, strict=True)]
        lines += group_integers(encoding, r, 0, w, places)
        for block in range(blocks):
            lines += _block_words(block, r, offset=bool(layout.offset))
    for block in range(blocks):
        words, more = transposed([f"%q{block}_{r}" for r in range(ROWS)], f"q{block}_")
        lines += [f"%block{block} = arith.addi %block0, %c{block} : index"] if block else []
        lines += [
            f"%panel_at{block} = arith.muli %block{block}, %c{BLOCK_WORDS} : index",
            *more,
            *panel_stores(words, sizes, f"{block}"),
            *(_sums(block, words, sizes) if layout.offset else ()),
        ]
    return lines


def _block_words(block: int, r: int, *, offset: bool) -> list[str]:
    """Makes ``%q<block>_<r>`` vector<8xi32> of a block's integers, signed with an offset."""
    name, chunk, kind = f"{block}_{r}", f"%u{r}_{block // 2}", "vector<32xi8>"
    lanes = listed(range(BLOCK * (block % 2), BLOCK * (block % 2) + BLOCK))
    lines = [f"%half{name} = vector.shuffle {chunk}, {chunk} {lanes} : vector<64xi8>, vector<64xi8>"]
    lines += [f"%signed{name} = arith.subi %half{name}, %above : {kind}"] if offset else []
    return [
        *lines,
        f"%q{name} = vector.bitcast {f'%signed{name}' if offset else f'%half{name}'} : {kind} to vector<8xi32>",
    ]


def _sums(block: int, words: Sequence[str], sizes: Sizes) -> list[str]:
    """Stores minus 128 times the sums of a block's halves, for each row."""
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
