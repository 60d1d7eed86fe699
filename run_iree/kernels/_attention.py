"""Attention over a cache in one dispatch, which does not read hidden keys.

It takes sixteen keys at a time, with a running maximum (Milakov and Gimelshein 2018, arXiv:1805.02867). A block of keys
is skipped if its bias hides all of it, so the cost of a step depends on the length of the sequence, or the window.
Several queries of a workgroup share a block's keys and values in f32 (``_attention_keys.py``); up to four of them that
see a block are computed side by side (``_attention_rows.py``), with the bits that each has alone.
"""

from typing import Final

from lang_core import BLOCK
from run_iree.kernels._attention_keys import (
    KEYS,
    panel_scratch,
    places,
)
from run_iree.kernels._attention_rows import SOON, Share, of_rows
from run_iree.kernels._attention_sizes import AttentionSizes, block_places, workgroup_places
from run_iree.kernels._cache_blocks import block_constants
from run_iree.kernels._lines import Buffer
from run_iree.kernels._quantize import Blocks, quantized
from run_iree.kernels._text import CpuKernel, constants, indented, listed, rounded, within

NAME: Final = "vector-cached-attention"
_LANES: Final = 16
_SEEN: Final = -1e29  # a key with a smaller bias is hidden
_VECTOR: Final = "vector<16xf32>"


def attention_kernel(sizes: AttentionSizes, dtype: str, scale: float, *, planes: int = 0) -> CpuKernel:
    """Builds q [B, K, G, T, H], k [B, K, S, H], v [B, K, S, H'], bias f32 [1 or B, T, S]: y [B, K, G, T, H'].

    If sequences choose rows of caches, k and v have as many as these, and rows i32 [B] follow the bias. If they choose
    several, rows are a table of pages i32 [B, M], and k and v have S / M positions, a multiple of 16. H and H' are
    multiples of 16, and S is at least 16. With an encoding the entries of k and v are packed. y has q's dtype, or f32
    if the sums are kept in it. With ``planes`` the result is y quantized as by ``quantize_kernel``; see
    ``AttentionSizes.fit_blocks``.
    """
    heads, group, tile, queries, keys = sizes.heads, sizes.group, sizes.tile, sizes.queries, sizes.keys
    size, value_size, own = sizes.size, sizes.value_size, sizes.own
    entries = dtype if sizes.encoding is None else "i8"
    count, stored = heads * group * queries, (sizes.cached or sizes.batch) * sizes.shared
    buffers = (
        Buffer("q", count * size, dtype),
        Buffer("k", stored * sizes.page * sizes.key_row, entries),
        Buffer("v", stored * sizes.page * sizes.value_row, entries),
        Buffer("bias", sizes.rows * queries * keys, "f32"),
        *([Buffer("rows", sizes.batch * sizes.pages, "i32")] if sizes.cached else []),
    )
    out = Buffer("out", count * value_size, dtype) if sizes.scratch else Buffer("y", count * value_size, "f32")
    blocks = Blocks(sizes.batch, count * value_size // sizes.batch, planes, "out_") if planes else None
    sums = f"%y = memref.alloca() : memref<{sizes.sums}xf32>\n" if sizes.scratch else ""
    steps = [_LANES * i for i in range(max(size, value_size) // _LANES)]
    numbers = [1, KEYS, BLOCK, sizes.shared, group, tile, queries, size, keys, value_size, keys - KEYS]
    numbers += [
        *range(1, sizes.together + 1),
        queries * keys,
        sizes.page * sizes.key_row,
        sizes.page * sizes.value_row,
        sizes.page,
        sizes.pages,
        own,
        group * queries,
        queries // tile,
        *steps,
    ]
    lines = sizes.key_row, sizes.value_row
    numbers += [j * columns for j in range(KEYS) for columns in lines]
    if sizes.encoding is not None:
        numbers += [size, value_size, *range(0, max(lines), sizes.encoding.block_bytes)]
    for columns in lines:
        share = Share.of(sizes, entries, columns)
        numbers += [*share.lines, share.row, share.last]
    body = f"""\
{constants(numbers)}
{indented([] if blocks is None else blocks.before, 0)}
{indented([] if sizes.encoding is None else block_constants(sizes.encoding), 0)}
%lane = arith.constant dense<{listed(range(_LANES))}> : vector<16xi32>
%none = arith.constant dense<0.0> : {_VECTOR}
%hidden = arith.constant dense<-1.0e30> : {_VECTOR}
%scale = arith.constant dense<{scale:.17e}> : {_VECTOR}
%seen = arith.constant dense<{_SEEN:.1e}> : {_VECTOR}
%no_key = arith.constant 0 : i16
%lowest = arith.constant -3.0e38 : f32
%nothing = arith.constant 0.0 : f32
%most = memref.alloca() : memref<{own}xf32>
%sum = memref.alloca() : memref<{own}xf32>
%head = arith.divui %workgroup, %c{queries // tile} : index
%part_of = arith.remui %workgroup, %c{queries // tile} : index
%first_query = arith.muli %part_of, %c{tile} : index
%sequence = arith.divui %head, %c{sizes.shared} : index
%bias_rows = arith.muli {"%c0" if sizes.rows == 1 else "%sequence"}, %c{queries * keys} : index
{indented(workgroup_places(sizes), 0)}
%rows_at = arith.muli %head, %c{group * queries} : index
{indented(panel_scratch(size, value_size) if sizes.panels else [], 0)}
{sums}scf.for %own = %c0 to %c{own} step %c1 {{
  memref.store %lowest, %most[%own] : memref<{own}xf32>
  memref.store %nothing, %sum[%own] : memref<{own}xf32>
{indented(_row(sizes), 2)}
{_at_sums(sizes, 2)}
{_stores("%none", sizes.sums, value_size, 2)}
}}
scf.for %block = %c0 to %c{keys} step %c{KEYS} {{
  %first = arith.minui %block, %c{keys - KEYS} : index
  %again = arith.subi %block, %first : index
  %again_i = arith.index_cast %again : index to i32
  %again_all = vector.broadcast %again_i : i32 to vector<16xi32>
  %is_new = arith.cmpi sge, %lane, %again_all : vector<16xi32>
{indented(block_places(sizes, "%first"), 2)}
  %next = arith.addi %first, %c{KEYS} : index
  %soon = arith.minui %next, %c{keys - KEYS} : index
{indented(block_places(sizes, "%soon", SOON), 2)}
{_rows_of_block(sizes, buffers)}
}}
scf.for %own = %c0 to %c{own} step %c1 {{
  %total = memref.load %sum[%own] : memref<{own}xf32>
  %all = vector.broadcast %total : f32 to {_VECTOR}
{indented(_row(sizes), 2)}
{_at_sums(sizes, 2)}
{_divided(sizes, out) if blocks is None else _blocks(sizes, dtype, blocks)}
}}
"""
    return CpuKernel(NAME, (*buffers, *((out,) if blocks is None else blocks.buffers)), heads * (queries // tile), body)


def _row(sizes: AttentionSizes, row: str = "") -> list[str]:
    """Makes ``%query`` and ``%row`` (of q and y) of the workgroup's row ``%own``: by heads, then queries."""
    return [
        f"%of_group{row} = arith.divui %own{row}, %c{sizes.tile} : index",
        f"%of_tile{row} = arith.remui %own{row}, %c{sizes.tile} : index",
        f"%query{row} = arith.addi %first_query, %of_tile{row} : index",
        f"%group_skip{row} = arith.muli %of_group{row}, %c{sizes.queries} : index",
        f"%group_at{row} = arith.addi %rows_at, %group_skip{row} : index",
        f"%row{row} = arith.addi %group_at{row}, %query{row} : index",
    ]


def _rows_of_block(sizes: AttentionSizes, buffers: tuple[Buffer, ...]) -> str:
    """Adds block ``%block`` to the sums of the workgroup's rows: side by side if all of some rows see it."""
    together = sizes.together
    rows = [str(row) for row in range(together)]
    single = [*_seen(sizes, "_one"), "scf.if %any_one {", *within(of_rows(sizes, buffers, ["_one"]), 2), "}"]
    if together == 1:
        lines = [f"scf.for %own_one = %c0 to %c{sizes.own} step %c1 {{", *within(single, 2), "}"]
        return indented(lines, 2)
    body = []
    for row in rows:
        body += [f"%own{row} = arith.addi %own, %c{row} : index", *_seen(sizes, row)]
    both = "%any0"
    for row in rows[1:]:
        body.append(f"%all{row} = arith.andi {both}, %any{row} : i1")
        both = f"%all{row}"
    body += [
        f"scf.if {both} {{",
        *within(of_rows(sizes, buffers, rows), 2),
        "} else {",
        f"  %own_end = arith.addi %own, %c{together} : index",
        "  scf.for %own_one = %own to %own_end step %c1 {",
        *within(single, 4),
        "  }",
        "}",
    ]
    return indented([f"scf.for %own = %c0 to %c{sizes.own} step %c{together} {{", *within(body, 2), "}"], 2)


def _seen(sizes: AttentionSizes, row: str) -> list[str]:
    """Makes the bias ``%b<row>`` of a row's sixteen keys, and ``%any<row>``, whether it sees one."""
    return [
        *_row(sizes, row),
        f"%bias_skip{row} = arith.muli %query{row}, %c{sizes.keys} : index",
        f"%bias_line{row} = arith.addi %bias_rows, %bias_skip{row} : index",
        f"%b_at{row} = arith.addi %bias_line{row}, %first : index",
        f"%b_given{row} = vector.load %bias[%b_at{row}] : "
        f"memref<{sizes.rows * sizes.queries * sizes.keys}xf32>, {_VECTOR}",
        f"%b{row} = arith.select %is_new, %b_given{row}, %hidden : vector<16xi1>, {_VECTOR}",
        f"%b_seen{row} = arith.cmpf ogt, %b{row}, %seen : {_VECTOR}",
        f"%b_bits{row} = vector.bitcast %b_seen{row} : vector<16xi1> to vector<1xi16>",
        f"%b_word{row} = vector.extract %b_bits{row}[0] : i16 from vector<1xi16>",
        f"%any{row} = arith.cmpi ne, %b_word{row}, %no_key : i16",
    ]


def _at_sums(sizes: AttentionSizes, by: int) -> str:
    """Makes ``%y_head``, if the sums of the workgroup's row ``%own`` begin."""
    row = "%own" if sizes.scratch else "%row"
    return " " * by + f"%y_head = arith.muli {row}, %c{sizes.value_size} : index"


def _stores(value: str, elements: int, size: int, by: int) -> str:
    kind = f"memref<{elements}xf32>, {_VECTOR}"
    stores = [f"vector.store {value}, %y[%y_place{i}] : {kind}" for i in range(size // _LANES)]
    return indented([*places("y_place", "%y_head", size), *stores], by)


def _divided(sizes: AttentionSizes, out: Buffer) -> str:
    """Stores the sums, divided by ``%all``, to the result."""
    size = sizes.value_size
    lines = [f"%out_head = arith.muli %row, %c{size} : index", *places("y_place", "%y_head", size)]
    lines += places("out_place", "%out_head", size)
    for i in range(size // _LANES):
        lines += [
            f"%y_sum{i} = vector.load %y[%y_place{i}] : memref<{sizes.sums}xf32>, {_VECTOR}",
            f"%y_mean{i} = arith.divf %y_sum{i}, %all : {_VECTOR}",
        ]
        mean, kind = f"%y_mean{i}", f"vector<{_LANES}x{out.kind}>"
        if out.kind != "f32":
            lines.append(f"%y_rounded{i} = arith.truncf {mean} : {_VECTOR} to {kind}")
            mean = f"%y_rounded{i}"
        lines.append(f"vector.store {mean}, %{out.name}[%out_place{i}] : {out.memref}, {kind}")
    return indented(lines, 2)


def _blocks(sizes: AttentionSizes, dtype: str, made: Blocks) -> str:
    """Stores the sums, divided by ``%all`` and quantized, to the result, which has y's rows."""
    sums = f"memref<{sizes.sums}xf32>, {_VECTOR}"
    lines = [
        "%i = arith.addi %out_head, %at : index",
        f"%j = arith.addi %i, %c{_LANES} : index",
        "%low_at = arith.addi %y_head, %at : index",
        f"%high_at = arith.addi %low_at, %c{_LANES} : index",
        f"%low_sum = vector.load %y[%low_at] : {sums}",
        f"%high_sum = vector.load %y[%high_at] : {sums}",
        *rounded("low", "arith.divf %low_sum, %all", dtype),
        *rounded("high", "arith.divf %high_sum, %all", dtype),
        f"%block = arith.divui %i, %c{BLOCK} : index",
        *quantized(made),
    ]
    loop = f"scf.for %at = %c0 to %c{sizes.value_size} step %c{BLOCK} {{"
    return indented([f"%out_head = arith.muli %row, %c{sizes.value_size} : index", loop, *within(lines), "}"], 2)
