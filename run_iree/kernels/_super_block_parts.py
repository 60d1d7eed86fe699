"""Parts of rows of W in super-blocks, unpacked for products of several tokens."""

from typing import Final

from lang_core import Encoding
from run_iree.kernels._lines import LINE, Buffer
from run_iree.kernels._packed_row import looked_up
from run_iree.kernels._sub_scales import part_minima, part_scales
from run_iree.kernels._super_block import (
    CHUNK,
    chunks_of_group,
    group_integers,
    super_block_constants,
    super_block_numbers,
)
from run_iree.kernels._text import listed, prefetches, scratch
from run_iree.kernels._unpacked_rows import EXCESS, ROW_PAD, ROW_SCALES, SCALES, PackedRows, rows_type, stored_integers

_SCALES: Final = 16  # of a super-block


def super_block_parts(encoding: Encoding, w: Buffer, ahead: int, kind: str, *, as_stored: bool) -> PackedRows:
    """Returns parts of one super-block each: unsigned integers with minima, or signed ones without."""
    layout, rows, size = encoding.layout, rows_type(encoding.block, kind), encoding.block
    soon = range(ahead, ahead + encoding.block_bytes, LINE) if ahead else ()
    has_minima = layout.minimum is not None
    minima = layout.parts if has_minima else 0
    before = [*super_block_constants(encoding), scratch("rows", rows)]
    lines = [
        f"%to = arith.muli %r, %c{size + ROW_PAD} : index",
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
    before.append(f"%flip = arith.constant dense<{-EXCESS}> : vector<{CHUNK}xi8>")
    if layout.offset:
        before.append(f"%above = arith.constant dense<{layout.offset}> : vector<{CHUNK}xi8>")
    count = chunks_of_group(layout)
    for chunk in range(size // CHUNK):
        lines += [] if chunk % count else group_integers(encoding, "", chunk // count, w.memref)
        more, integers, sign = ([], f"%u_{chunk}", "ui") if as_stored else _values(encoding, chunk)
        lines += more
        if kind != "f32":
            lines += _put(chunk, integers, sign, rows, kind)
        else:
            for part in range(chunk * CHUNK // layout.scaled, (chunk + 1) * CHUNK // layout.scaled):
                lines += _part_floats(encoding, chunk, part, integers, sign, scales, rows)
    numbers = (size + ROW_PAD, ROW_SCALES, *soon, *super_block_numbers(encoding))
    offset = layout.offset if as_stored else EXCESS if kind == "i8" and (layout.offset or layout.table) else 0
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
    lines, name = stored_integers(f"stored{chunk}", integers, sign, kind, CHUNK)
    return [
        *lines,
        f"%skip{chunk} = arith.constant {CHUNK * chunk} : index",
        f"%to{chunk} = arith.addi %to, %skip{chunk} : index",
        f"vector.store {name}, %rows[%to{chunk}] : {rows}, vector<{CHUNK}x{kind}>",
    ]


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
