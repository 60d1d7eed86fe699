"""Lines that read the small scales and minima of a super-block's parts, generated from the layout of its encoding.

Names of values end with the number ``r`` of a row, or with nothing if a kernel reads one row at a time. Lines of
``super_block_constants``, and index constants of ``super_block_numbers``, stand ahead of all loops.
"""

from collections.abc import Sequence
from typing import Final

from lang_core import BitField, BlockLayout, Encoding, Plane, SubScales
from run_iree.kernels._packed_row import half
from run_iree.kernels._text import listed

_SUMS: Final = "vector<16xf32>"
_WORD: Final = 4  # bytes of the integers that numbers are shifted out of
_LONGEST: Final = 8  # bytes of the longest integer


def part_scales(encoding: Encoding, r: int | str, w: str, order: Sequence[int] = range(16)) -> list[str]:
    """Makes ``%scaled<r>`` vector<16xf32> of the scales of the super-block at ``%at<r>``.

    They are ``d * sc`` of sixteen parts, or of eight parts and then their ``dmin * m``.

    Args:
        encoding: encoding of the weight.
        r: number of the row, at the end of all names.
        w: type of the weight.
        order: which scale each lane gets, for scales that are bytes or lie in planes.
    """
    layout = encoding.layout
    scales = layout.sub_scales
    assert scales is not None
    if scales.planes:
        lanes = [number % layout.parts for number in order]
        return _scaled_numbers(layout, scales, lanes, layout.scale, f"scaled{r}", r, w)
    head = f"%scales_at{r}" if scales.at else f"%at{r}"
    apart = not scales.at <= layout.scale < scales.at + 16
    lines = [f"%scales_at{r} = arith.addi %at{r}, %c{scales.at} : index"] if scales.at else []
    lines += [f"%d_at{r} = arith.addi %at{r}, %c{layout.scale} : index"] if apart else []
    lines += [f"%head{r} = vector.load %w[{head}] : {w}, vector<16xi8>"]
    if scales.fields:
        lines += _joined_fields(scales.fields, r)
    else:
        lines.append(f"%narrow{r} = vector.shuffle %head{r}, %head{r} {listed(order)} : vector<16xi8>, vector<16xi8>")
    lines += [
        f"%wide{r} = arith.ext{'si' if scales.signed else 'ui'} %narrow{r} : vector<16xi8> to vector<16xi32>",
        f"%float_scales{r} = arith.sitofp %wide{r} : vector<16xi32> to {_SUMS}",
    ]
    count, lanes = 1, [0] * 16
    if apart:
        lines += half(f"halves{r}", f"%d_at{r}", w)
    else:
        count, lanes = 8, [(place - scales.at) // 2 for place in layout.halves for _ in range(16 // len(layout.halves))]
        lines.append(f"%halves{r} = vector.bitcast %head{r} : vector<16xi8> to vector<8xf16>")
    kind = f"vector<{count}xf16>"
    return [
        *lines,
        f"%both{r} = vector.shuffle %halves{r}, %halves{r} {listed(lanes)} : {kind}, {kind}",
        f"%d{r} = arith.extf %both{r} : vector<16xf16> to {_SUMS}",
        f"%scaled{r} = arith.mulf %float_scales{r}, %d{r} : {_SUMS}",
    ]


def part_minima(encoding: Encoding, r: int | str, w: str, order: Sequence[int] = range(16)) -> list[str]:
    """Makes ``%least<r>`` vector<16xf32> of the minima of the super-block at ``%at<r>``, of parts in an order."""
    layout = encoding.layout
    scales, place = layout.sub_scales, layout.minimum
    assert scales is not None
    assert place is not None
    return _scaled_numbers(layout, scales, [layout.parts + part for part in order], place, f"least{r}", r, w)


def _scaled_numbers(
    layout: BlockLayout, scales: SubScales, lanes: Sequence[int], place: int, name: str, r: int | str, w: str
) -> list[str]:
    """Makes ``%name`` vector<16xf32> of small numbers in planes, times the f16 at a place of the super-block.

    Args:
        layout: layout of the super-block.
        scales: its small numbers.
        lanes: number for each lane.
        place: first byte of the f16.
        name: name of the result; other names begin with it.
        r: number of the row.
        w: type of the weight.
    """
    words = "vector<16xi32>"
    count = layout.parts * (1 if layout.minimum is None else 2)
    if all(plane.span == 1 for plane in scales.planes):
        numbers = _bit_numbers(scales, count, lanes, name, r, w)
    else:
        numbers = _byte_numbers(scales, count, lanes, name, r, w)
    return [
        *numbers,
        f"%{name}_float = arith.sitofp %{name}_number : {words} to {_SUMS}",
        f"%{name}_d_at = arith.addi %at{r}, %c{place} : index",
        *half(f"{name}_d", f"%{name}_d_at", w),
        f"%{name}_wide = arith.extf %{name}_d : vector<1xf16> to vector<1xf32>",
        f"%{name}_one = vector.extract %{name}_wide[0] : f32 from vector<1xf32>",
        f"%{name}_all = vector.broadcast %{name}_one : f32 to {_SUMS}",
        f"%{name} = arith.mulf %{name}_float, %{name}_all : {_SUMS}",
    ]


def _byte_numbers(scales: SubScales, count: int, lanes: Sequence[int], name: str, r: int | str, w: str) -> list[str]:
    """Makes ``%<name>_number`` vector<16xi32> of small numbers with planes in runs of bytes: as bytes first."""
    kind, lines, joined = "vector<16xi8>", [], ""
    for i, plane in enumerate(scales.planes):
        lines += _plane_bytes(plane, count, lanes, f"{name}_{i}", r, w)
        if joined:
            lines.append(f"%{name}_joined{i} = arith.ori {joined}, %{name}_{i} : {kind}")
        joined = f"%{name}_joined{i}" if joined else f"%{name}_{i}"
    return [
        *lines,
        f"%{name}_offset = arith.constant dense<{scales.offset}> : {kind}",
        f"%{name}_byte = arith.subi {joined}, %{name}_offset : {kind}",
        f"%{name}_number = arith.extsi %{name}_byte : {kind} to vector<16xi32>",
    ]


def _plane_bytes(plane: Plane, count: int, lanes: Sequence[int], name: str, r: int | str, w: str) -> list[str]:
    """Makes ``%name`` vector<16xi8> of a plane's bits of small numbers, at their position: one for each lane.

    A run of at most eight bytes is one integer, which is shifted for each part of the run on a lane of its own.
    """
    size, kind, parts = count * plane.bits // 8, "vector<16xi8>", plane.run // plane.span
    stored, mask = f"vector<{size}xi8>", ((1 << plane.bits) - 1) << plane.up
    lines = [
        f"%{name}_at = arith.addi %at{r}, %c{plane.at} : index",
        f"%{name}_stored = vector.load %w[%{name}_at] : {w}, {stored}",
    ]
    source, order, moved = f"%{name}_stored", [*lanes], {lane % plane.run // plane.span for lane in lanes}
    if size == plane.span <= _LONGEST and len(moved) > 1:
        one, whole, apart = f"vector<1xi{8 * size}>", f"vector<{parts}xi{8 * size}>", f"vector<{size * parts}xi8>"
        lines += [
            f"%{name}_one = vector.bitcast {source} : {stored} to {one}",
            f"%{name}_whole = vector.shuffle %{name}_one, %{name}_one {listed([0] * parts)} : {one}, {one}",
            f"%{name}_right = arith.constant dense<{listed(range(0, 8, plane.bits))}> : {whole}",
            f"%{name}_moved = arith.shrui %{name}_whole, %{name}_right : {whole}",
            f"%{name}_apart = vector.bitcast %{name}_moved : {whole} to {apart}",
        ]
        source, stored, moved = f"%{name}_apart", apart, {0}
    else:
        order = [lane // plane.run * plane.span + lane % plane.span for lane in lanes]
    lines += [
        f"%{name}_lanes = vector.shuffle {source}, {source} {listed(order)} : {stored}, {stored}",
        f"%{name}_mask = arith.constant dense<{mask}> : {kind}",
    ]
    down = [lane % plane.run // plane.span * plane.bits if moved != {0} else 0 for lane in lanes]
    return [
        *lines,
        f"%{name}_down = arith.constant dense<{listed(down)}> : {kind}",
        f"%{name}_low = arith.shrui %{name}_lanes, %{name}_down : {kind}",
        f"%{name}_up = arith.constant dense<{plane.up}> : {kind}",
        f"%{name}_high = arith.shli %{name}_low, %{name}_up : {kind}",
        f"%{name} = arith.andi %{name}_high, %{name}_mask : {kind}",
    ]


def _bit_numbers(scales: SubScales, count: int, lanes: Sequence[int], name: str, r: int | str, w: str) -> list[str]:
    """Makes ``%<name>_number`` vector<16xi32> of small numbers with consecutive bits: words, each shifted."""
    words, lines, joined = f"vector<{count}xi32>", [], ""
    for i, plane in enumerate(scales.planes):
        size, part = count * plane.bits // 8, f"{name}_{i}"
        one, right = f"i{8 * size}", [plane.bits * number for number in range(count)]
        lines += [
            f"%{part}_at = arith.addi %at{r}, %c{plane.at} : index",
            f"%{part}_stored = vector.load %w[%{part}_at] : {w}, vector<{size}xi8>",
            f"%{part}_one = vector.bitcast %{part}_stored : vector<{size}xi8> to vector<1x{one}>",
            f"%{part}_bits = vector.extract %{part}_one[0] : {one} from vector<1x{one}>",
            *([] if size == _WORD else [f"%{part}_word = arith.extui %{part}_bits : {one} to i32"]),
            f"%{part}_all = vector.broadcast %{part}_{'bits' if size == _WORD else 'word'} : i32 to {words}",
            f"%{part}_right = arith.constant dense<{listed(right)}> : {words}",
            f"%{part}_mask = arith.constant dense<{(1 << plane.bits) - 1}> : {words}",
            f"%{part}_up = arith.constant dense<{plane.up}> : {words}",
            f"%{part}_low = arith.shrui %{part}_all, %{part}_right : {words}",
            f"%{part}_only = arith.andi %{part}_low, %{part}_mask : {words}",
            f"%{part} = arith.shli %{part}_only, %{part}_up : {words}",
        ]
        if joined:
            lines.append(f"%{name}_joined{i} = arith.ori {joined}, %{part} : {words}")
        joined = f"%{name}_joined{i}" if joined else f"%{part}"
    return [
        *lines,
        f"%{name}_offset = arith.constant dense<{scales.offset}> : {words}",
        f"%{name}_whole = arith.subi {joined}, %{name}_offset : {words}",
        f"%{name}_number = vector.shuffle %{name}_whole, %{name}_whole {listed(lanes)} : {words}, {words}",
    ]


def _joined_fields(fields: Sequence[BitField], r: int | str) -> list[str]:
    """Makes ``%narrow<r>`` vector<16xi8>: the bit fields of the words in ``%head<r>``, joined."""
    words = "vector<4xi32>"
    lines, joined = [f"%words{r} = vector.bitcast %head{r} : vector<16xi8> to {words}"], ""
    for i, field in enumerate(fields):
        name = f"{r}_{i}"
        lines += [
            f"%picked{name} = vector.shuffle %words{r}, %words{r} {listed(field.words)} : {words}, {words}",
            f"%right{name} = arith.shrui %picked{name}, %k_right{i} : {words}",
            f"%field{name} = arith.andi %right{name}, %k_mask{i} : {words}",
        ]
        if joined:
            lines.append(f"%joined{name} = arith.ori {joined}, %field{name} : {words}")
        joined = f"%joined{name}" if joined else f"%field{name}"
    return [*lines, f"%narrow{r} = vector.bitcast {joined} : {words} to vector<16xi8>"]
