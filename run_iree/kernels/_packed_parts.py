"""Parts of packed rows of W, unpacked for products of several tokens."""

from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._lanes_matmul import ROWS
from run_iree.kernels._lines import Buffer
from run_iree.kernels._packed_row import minima_of_blocks, scales_of_blocks, signed_block, stored_block, unsigned_offset
from run_iree.kernels._super_block_parts import super_block_parts
from run_iree.kernels._text import largest_divisor, prefetches, scratch
from run_iree.kernels._unpacked_rows import EXCESS, ROW_PAD, ROW_SCALES, SCALES, PackedRows, rows_type, stored_integers

_PART: Final = {"i8": 256, "i16": 256, "f32": 128}  # columns of a part of blocks of 32, at most
_MOST_BY_TURNS: Final = 12  # blocks of a part if several accumulators take them by turns


def packed_rows(
    columns: int,
    encoding: Encoding,
    w: Buffer,
    kind: str,
    accumulators: int = 1,
    *,
    as_stored: bool = False,
    asks: bool = True,
) -> PackedRows:
    """Returns how rows of W, with so many columns, are unpacked to i16, i8 or f32.

    Args:
        columns: columns of W.
        encoding: encoding of W.
        w: buffer of W.
        kind: see ``PackedRows``.
        accumulators: see ``Tokens``; of blocks of 32 alone more than one.
        as_stored: whether i8 are the integers as they are stored, of an encoding without a table.
        asks: whether the lines prefetch the same part of the next sixteen rows.
    """
    ahead = ROWS * (columns // encoding.block) * encoding.block_bytes if asks else 0
    if encoding.block == BLOCK:
        return _blocks(columns, encoding, w, ahead, kind, accumulators, as_stored=as_stored)
    return super_block_parts(encoding, w, ahead, kind, as_stored=as_stored)


def part_blocks(columns: int, kind: str, accumulators: int = 1) -> int:
    """Returns how many blocks of 32 a part has."""
    most = _PART[kind] // BLOCK if accumulators == 1 else _MOST_BY_TURNS
    return largest_divisor(columns // BLOCK // accumulators, most)


def _blocks(
    columns: int, encoding: Encoding, w: Buffer, ahead: int, kind: str, accumulators: int, *, as_stored: bool
) -> PackedRows:
    """Returns parts of several blocks of 32."""
    read, sign = (stored_block, "ui") if as_stored or encoding.layout.minimum is not None else (signed_block, "si")
    blocks, apart = part_blocks(columns, kind, accumulators), accumulators * encoding.block_bytes
    size, has_minima = blocks * BLOCK, encoding.layout.minimum is not None
    rows, minima = rows_type(size, kind), blocks if has_minima else 0
    before = [
        "%nibble = arith.constant dense<15> : vector<16xi8>",
        "%four = arith.constant dense<4> : vector<16xi8>",
        f"%offset = arith.constant dense<{unsigned_offset(encoding)}> : vector<32xi8>",
        scratch("rows", rows),
    ]
    before += [scratch("scales", SCALES)] if kind != "f32" else []
    before.append(f"%flip = arith.constant dense<{-EXCESS}> : vector<{BLOCK}xi8>")
    lines = [
        f"%to = arith.muli %r, %c{size + ROW_PAD} : index",
        f"%scales_to = arith.muli %r, %c{ROW_SCALES} : index",
    ]
    for b in range(blocks):
        lines += [
            f"%skip{b} = arith.constant {b * apart} : index",
            f"%block_at{b} = arith.addi %at, %skip{b} : index",
            *prefetches(f"soon{b}_", f"%block_at{b}", w, [ahead] if ahead else [], locality=2),
        ]
    begins = [f"%block_at{b}" for b in range(blocks)]
    lines += scales_of_blocks(encoding, begins, "d", w.memref)
    lines += minima_of_blocks(encoding, begins, "least", w.memref) if has_minima else []
    lines += [] if kind == "f32" else _scales_stored(blocks, minima)
    for b in range(blocks):
        lines += [
            f"%q_skip{b} = arith.constant {encoding.layout.planes[0].at} : index",
            f"%q_at{b} = arith.addi %block_at{b}, %q_skip{b} : index",
            *read(encoding, f"%block_at{b}", f"%q_at{b}", f"q{b}", w.memref),
            *(_block_floats(b, blocks, has_minima) if kind == "f32" else []),
        ]
        more, name = (
            ([], f"%weights{b}") if kind == "f32" else stored_integers(f"stored{b}", f"%q{b}", sign, kind, BLOCK)
        )
        lines += [
            *more,
            f"%skipped{b} = arith.constant {b * BLOCK} : index",
            f"%place{b} = arith.addi %to, %skipped{b} : index",
            f"vector.store {name}, %rows[%place{b}] : {rows}, vector<{BLOCK}x{kind}>",
        ]
    numbers = (1, size + ROW_PAD, ROW_SCALES, ahead)
    offset = encoding.layout.offset if as_stored else EXCESS if kind == "i8" and not has_minima else 0
    return PackedRows(kind, size, BLOCK, minima, offset, blocks * encoding.block_bytes, numbers, before, lines)


def _scales_stored(blocks: int, minima: int) -> list[str]:
    """Stores ``%d``, and ``%least`` if there are minima."""
    kind, lines = f"vector<{blocks}xf32>", [f"vector.store %d, %scales[%scales_to] : {SCALES}, vector<{blocks}xf32>"]
    if minima:
        lines += [
            f"%minimum_skip = arith.constant {minima} : index",
            "%least_to = arith.addi %scales_to, %minimum_skip : index",
            f"vector.store %least, %scales[%least_to] : {SCALES}, {kind}",
        ]
    return lines


def _block_floats(b: int, blocks: int, has_minima: bool) -> list[str]:
    """Makes ``%weights<b>`` of ``%q<b>``, times its scale in ``%d``, plus its minimum in ``%least``."""
    kind = f"vector<{BLOCK}xf32>"
    lines = [
        f"%wide{b} = arith.extsi %q{b} : vector<{BLOCK}xi8> to vector<{BLOCK}xi32>",
        f"%float{b} = arith.sitofp %wide{b} : vector<{BLOCK}xi32> to {kind}",
        f"%one{b} = vector.extract %d[{b}] : f32 from vector<{blocks}xf32>",
        f"%all{b} = vector.broadcast %one{b} : f32 to {kind}",
    ]
    if not has_minima:
        return [*lines, f"%weights{b} = arith.mulf %float{b}, %all{b} : {kind}"]
    return [
        *lines,
        f"%least_one{b} = vector.extract %least[{b}] : f32 from vector<{blocks}xf32>",
        f"%least_all{b} = vector.broadcast %least_one{b} : f32 to {kind}",
        f"%weights{b} = math.fma %float{b}, %all{b}, %least_all{b} : {kind}",
    ]
