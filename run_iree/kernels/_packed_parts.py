"""Parts of packed rows of W, unpacked for products of several tokens.

A part of sixteen rows lies on the stack: integers of 16 or 8 bits in ``%rows`` and their scales in ``%scales``, or f32
with their scales in them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import BLOCK, Encoding
from run_iree.kernels._lanes_matmul import ROWS
from run_iree.kernels._packed_row import block_minimum, block_scale, looked_up, signed_block, unsigned_offset
from run_iree.kernels._sub_scales import part_minima, part_scales
from run_iree.kernels._super_block import (
    CHUNK,
    chunks_of_group,
    group_integers,
    super_block_constants,
    super_block_numbers,
)
from run_iree.kernels._text import LINE, Buffer, largest_divisor, listed, prefetches, scratch, within

_PART: Final = {"i8": 256, "i16": 256, "f32": 128}  # columns of a part of blocks of 32, at most
_MOST_BY_TURNS: Final = 12  # blocks of a part where several accumulators take them by turns
_PAD: Final = 16  # elements between rows, so that they do not lie a power of two apart
ROW_SCALES: Final = 32  # places of a row in ``%scales``
_SCALES: Final = 16  # of a super-block
_EXCESS: Final = 128  # of unsigned bytes over signed ones


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Lines that unpack a part of a row.

    Attributes:
        kind: i16 or i8 with scales apart, or f32; i8 are unsigned.
        columns: columns of a part.
        scaled: columns that share a scale.
        minima: place of a row's first minimum, negated, among its scales; 0 where there are none.
        offset: excess of the integers over their values.
        stored: bytes of a part.
        numbers: index constants that the lines need.
        before: lines ahead of all loops.
        lines: lines that unpack row ``%r``, whose part begins at ``%at``.
    """

    kind: str
    columns: int
    scaled: int
    minima: int
    offset: int
    stored: int
    numbers: Sequence[int]
    before: Sequence[str]
    lines: Sequence[str]

    @property
    def stride(self) -> int:
        """Elements from one row to the next."""
        return self.columns + _PAD

    @property
    def rows(self) -> str:
        """Type of ``%rows``."""
        return _rows(self.columns, self.kind)


SCALES: Final = f"memref<{ROWS * ROW_SCALES}xf32>"
"""Type of ``%scales``, for each row the scales and minima of its parts."""


def _rows(columns: int, kind: str) -> str:
    return f"memref<{ROWS * (columns + _PAD)}x{kind}>"


def packed_rows(columns: int, encoding: Encoding, w: Buffer, kind: str, accumulators: int = 1) -> PackedRows:
    """Returns how rows of W, with so many columns, are unpacked to i16, i8 or f32.

    Args:
        columns: columns of W.
        encoding: encoding of W.
        w: buffer of W.
        kind: see ``PackedRows``.
        accumulators: see ``Tokens``; of blocks of 32 alone more than one.
    """
    ahead = ROWS * (columns // encoding.block) * encoding.block_bytes
    if encoding.block == BLOCK:
        return _blocks(columns, encoding, w, ahead, kind, accumulators)
    return _super_blocks(columns, encoding, w, ahead, kind)


def part_blocks(columns: int, kind: str, accumulators: int = 1) -> int:
    """Returns how many blocks of 32 a part has."""
    most = _PART[kind] // BLOCK if accumulators == 1 else _MOST_BY_TURNS
    return largest_divisor(columns // BLOCK // accumulators, most)


def _super_blocks(columns: int, encoding: Encoding, w: Buffer, ahead: int, kind: str) -> PackedRows:
    """Returns parts of one super-block each: unsigned integers with minima, or signed ones without."""
    del columns
    layout, rows, size = encoding.layout, _rows(encoding.block, kind), encoding.block
    soon = range(ahead, ahead + encoding.block_bytes, LINE)
    has_minima = layout.minimum is not None
    minima = layout.parts if has_minima else 0
    before = [*super_block_constants(encoding), scratch("rows", rows)]
    lines = [
        f"%to = arith.muli %r, %c{size + _PAD} : index",
        *prefetches("soon", "%at", w, soon, locality=2),
        *part_scales(encoding, "", w.memref),
    ]
    scales = {0: "%scaled"}
    if has_minima and layout.parts == _SCALES:
        lines += part_minima(encoding, "", w.memref)
        lines.append(f"%negative = arith.negf %least : vector<{_SCALES}xf32>")
        scales[_SCALES] = "%negative"
    elif has_minima:
        signs = listed([1.0] * layout.parts + [-1.0] * (_SCALES - layout.parts))
        before.append(f"%signs = arith.constant dense<{signs}> : vector<{_SCALES}xf32>")
        lines.append(f"%signed_scales = arith.mulf %scaled, %signs : vector<{_SCALES}xf32>")
        scales[0] = "%signed_scales"
    if kind != "f32":
        lines.append(f"%scales_to = arith.muli %r, %c{ROW_SCALES} : index")
        for place, name in scales.items():
            lines += [
                f"%place_of{place} = arith.constant {place} : index",
                f"%scales_at{place} = arith.addi %scales_to, %place_of{place} : index",
                f"vector.store {name}, %scales[%scales_at{place}] : {SCALES}, vector<{_SCALES}xf32>",
            ]
        before.append(scratch("scales", SCALES))
    before.append(f"%flip = arith.constant dense<{-_EXCESS}> : vector<{CHUNK}xi8>")
    if layout.offset:
        before.append(f"%above = arith.constant dense<{layout.offset}> : vector<{CHUNK}xi8>")
    count = chunks_of_group(layout)
    for chunk in range(size // CHUNK):
        lines += [] if chunk % count else group_integers(encoding, "", chunk // count, w.memref)
        more, integers, sign = _values(encoding, chunk)
        lines += more
        if kind != "f32":
            lines += _put(chunk, integers, sign, rows, kind)
        else:
            for part in range(chunk * CHUNK // layout.scaled, (chunk + 1) * CHUNK // layout.scaled):
                lines += _part_floats(encoding, chunk, part, integers, sign, scales, rows)
    numbers = (size + _PAD, ROW_SCALES, *soon, *super_block_numbers(encoding))
    offset = _EXCESS if kind == "i8" and (layout.offset or layout.table) else 0
    return PackedRows(kind, size, layout.scaled, minima, offset, encoding.block_bytes, numbers, before, lines)


def _values(encoding: Encoding, chunk: int) -> tuple[list[str], str, str]:
    """Returns lines, the name of a chunk's values, vector<64xi8>, and ``si`` or ``ui`` for their sign."""
    layout, integers = encoding.layout, f"%u_{chunk}"
    if layout.table is not None:
        return looked_up(layout.table, integers, f"signed{chunk}", CHUNK), f"%signed{chunk}", "si"
    if layout.offset:
        line = f"%signed{chunk} = arith.subi {integers}, %above : vector<{CHUNK}xi8>"
        return [line], f"%signed{chunk}", "si"
    return [], integers, "ui"


def _put(chunk: int, integers: str, sign: str, rows: str, kind: str) -> list[str]:
    """Stores a chunk of a super-block, vector<64xi8>, to its place; ``sign`` is ``si`` or ``ui``."""
    lines, name = _stored(f"stored{chunk}", integers, sign, kind, CHUNK)
    return [
        *lines,
        f"%skip{chunk} = arith.constant {CHUNK * chunk} : index",
        f"%to{chunk} = arith.addi %to, %skip{chunk} : index",
        f"vector.store {name}, %rows[%to{chunk}] : {rows}, vector<{CHUNK}x{kind}>",
    ]


def _stored(name: str, integers: str, sign: str, kind: str, lanes: int) -> tuple[list[str], str]:
    """Returns lines and the name of integers as they lie in ``%rows``: of 16 bits, or unsigned ones of 8."""
    if kind == "i16":
        return [f"%{name} = arith.ext{sign} {integers} : vector<{lanes}xi8> to vector<{lanes}xi16>"], f"%{name}"
    if sign == "ui":
        return [], integers
    return [f"%{name} = arith.xori {integers}, %flip : vector<{lanes}xi8>"], f"%{name}"


def _part_floats(
    encoding: Encoding, chunk: int, part: int, integers: str, sign: str, scales: dict[int, str], rows: str
) -> list[str]:
    """Stores a part of a chunk of a super-block, scaled, to its place."""
    layout = encoding.layout
    size = layout.scaled
    kind, first = f"vector<{size}xf32>", part * size - chunk * CHUNK
    own = listed(range(first, first + size))
    minimum = ("", 0)
    if layout.minimum is not None:
        minimum = (scales[_SCALES], part) if _SCALES in scales else (scales[0], layout.parts + part)
    return [
        f"%part{part} = vector.shuffle {integers}, {integers} {own} : vector<{CHUNK}xi8>, vector<{CHUNK}xi8>",
        *_scaled(f"{part}", f"%part{part}", sign, (scales[0], part), minimum, size),
        f"%part_skip{part} = arith.constant {part * size} : index",
        f"%part_to{part} = arith.addi %to, %part_skip{part} : index",
        f"vector.store %weights{part}, %rows[%part_to{part}] : {rows}, {kind}",
    ]


def _scaled(n: str, integers: str, sign: str, scale: tuple[str, int], minimum: tuple[str, int], size: int) -> list[str]:
    """Makes ``%weights<n>`` of integers, times a scale, plus a minimum; both are lanes of vector<16xf32>."""
    kind, lines = f"vector<{size}xf32>", []
    for name, (source, lane) in (("scale", scale), ("minimum", minimum)):
        if source:
            lines += [
                f"%{name}_one{n} = vector.extract {source}[{lane}] : f32 from vector<{_SCALES}xf32>",
                f"%{name}_all{n} = vector.broadcast %{name}_one{n} : f32 to {kind}",
            ]
    floats = f"%float{n}"
    wide = f"vector<{size}xi32>"
    lines += [
        f"%wide{n} = arith.ext{sign} {integers} : vector<{size}xi8> to {wide}",
        f"{floats} = arith.sitofp %wide{n} : {wide} to {kind}",
    ]
    if minimum[0]:
        return [*lines, f"%weights{n} = math.fma {floats}, %scale_all{n}, %minimum_all{n} : {kind}"]
    return [*lines, f"%weights{n} = arith.mulf {floats}, %scale_all{n} : {kind}"]


def _blocks(columns: int, encoding: Encoding, w: Buffer, ahead: int, kind: str, accumulators: int) -> PackedRows:
    """Returns parts of several blocks of 32, of signed integers."""
    blocks, apart = part_blocks(columns, kind, accumulators), accumulators * encoding.block_bytes
    size, has_minima = blocks * BLOCK, encoding.layout.minimum is not None
    rows, minima = _rows(size, kind), blocks if has_minima else 0
    before = [
        "%nibble = arith.constant dense<15> : vector<16xi8>",
        "%four = arith.constant dense<4> : vector<16xi8>",
        f"%offset = arith.constant dense<{unsigned_offset(encoding)}> : vector<32xi8>",
        scratch("rows", rows),
    ]
    before += [scratch("scales", SCALES)] if kind != "f32" else []
    before.append(f"%flip = arith.constant dense<{-_EXCESS}> : vector<{BLOCK}xi8>")
    lines = [
        f"%to = arith.muli %r, %c{size + _PAD} : index",
        f"%scales_to = arith.muli %r, %c{ROW_SCALES} : index",
        f"scf.for %block = %c0 to %c{blocks} step %c1 {{",
        f"  %skip = arith.muli %block, %c{apart} : index",
        "  %block_at = arith.addi %at, %skip : index",
        *within(prefetches("soon", "%block_at", w, [ahead], locality=2)),
        f"  %q_at = arith.addi %block_at, %c{encoding.layout.planes[0].at} : index",
        *within(block_scale(encoding, "%block_at", "d", w.memref)),
        *within(block_minimum(encoding, "%block_at", "least", w.memref) if has_minima else []),
        *within(signed_block(encoding, "%block_at", "%q_at", "q", w.memref)),
        f"  %skipped = arith.muli %block, %c{BLOCK} : index",
        "  %place = arith.addi %to, %skipped : index",
        *within(_block_floats(has_minima, rows) if kind == "f32" else _block_integers(minima, rows, kind)),
        "}",
    ]
    numbers = (1, encoding.layout.planes[0].at, BLOCK, blocks, apart, size + _PAD, ROW_SCALES, ahead)
    offset = _EXCESS if kind == "i8" and not has_minima else 0
    return PackedRows(kind, size, BLOCK, minima, offset, blocks * encoding.block_bytes, numbers, before, lines)


def _block_integers(minima: int, rows: str, kind: str) -> list[str]:
    """Stores ``%q``, the scale ``%d`` and the minimum ``%least`` of the block at ``%block_at``."""
    lines = [
        "%scale_at = arith.addi %scales_to, %block : index",
        f"memref.store %d, %scales[%scale_at] : {SCALES}",
    ]
    if minima:
        lines += [
            f"%minimum_skip = arith.constant {minima} : index",
            "%least_to = arith.addi %scale_at, %minimum_skip : index",
            f"memref.store %least, %scales[%least_to] : {SCALES}",
        ]
    more, name = _stored("stored", "%q", "ui" if minima else "si", kind, BLOCK)
    return [*lines, *more, f"vector.store {name}, %rows[%place] : {rows}, vector<{BLOCK}x{kind}>"]


def _block_floats(has_minima: bool, rows: str) -> list[str]:
    """Stores ``%q``, times the scale ``%d``, plus the minimum ``%least``."""
    kind = f"vector<{BLOCK}xf32>"
    lines = [
        f"%wide = arith.extsi %q : vector<{BLOCK}xi8> to vector<{BLOCK}xi32>",
        f"%float = arith.sitofp %wide : vector<{BLOCK}xi32> to {kind}",
        f"%all = vector.broadcast %d : f32 to {kind}",
    ]
    if has_minima:
        lines += [
            f"%least_all = vector.broadcast %least : f32 to {kind}",
            f"%weights = math.fma %float, %all, %least_all : {kind}",
        ]
    else:
        lines.append(f"%weights = arith.mulf %float, %all : {kind}")
    return [*lines, f"vector.store %weights, %rows[%place] : {rows}, {kind}"]
