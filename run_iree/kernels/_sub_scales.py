"""Lines that read the small scales and minima of a super-block's parts, generated from the layout of its encoding.

Names of values end with the number ``r`` of a row, or with nothing where a kernel reads one row at a time. Lines of
``super_block_constants``, and index constants of ``super_block_numbers``, stand ahead of all loops.
"""

from collections.abc import Sequence
from typing import Final

from lang_core import BitField, BlockLayout, Encoding, Plane, SubScales
from run_iree.kernels._packed_row import half
from run_iree.kernels._text import listed

_SUMS: Final = "vector<16xf32>"


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
    words, joined, lines = "vector<16xi32>", "", []
    count = layout.parts * (1 if layout.minimum is None else 2)
    for i, plane in enumerate(scales.planes):
        lines += _plane_numbers(plane, count, lanes, f"{name}_{i}", r, w)
        if joined:
            lines.append(f"%{name}_joined{i} = arith.ori {joined}, %{name}_{i} : {words}")
        joined = f"%{name}_joined{i}" if joined else f"%{name}_{i}"
    return [
        *lines,
        f"%{name}_offset = arith.constant dense<{scales.offset}> : {words}",
        f"%{name}_number = arith.subi {joined}, %{name}_offset : {words}",
        f"%{name}_float = arith.sitofp %{name}_number : {words} to {_SUMS}",
        f"%{name}_d_at = arith.addi %at{r}, %c{place} : index",
        *half(f"{name}_d", f"%{name}_d_at", w),
        f"%{name}_wide = arith.extf %{name}_d : vector<1xf16> to vector<1xf32>",
        f"%{name}_one = vector.extract %{name}_wide[0] : f32 from vector<1xf32>",
        f"%{name}_all = vector.broadcast %{name}_one : f32 to {_SUMS}",
        f"%{name} = arith.mulf %{name}_float, %{name}_all : {_SUMS}",
    ]


def _plane_numbers(plane: Plane, count: int, lanes: Sequence[int], name: str, r: int | str, w: str) -> list[str]:
    """Makes ``%name`` vector<16xi32> of a plane's bits of small numbers, at their position: one for each lane."""
    words, size = "vector<16xi32>", count * plane.bits // 8
    stored = f"vector<{size}xi8>"
    picked = [lane // plane.run * plane.span + lane % plane.span for lane in lanes]
    right = [lane % plane.run // plane.span * plane.bits for lane in lanes]
    return [
        f"%{name}_right = arith.constant dense<{listed(right)}> : {words}",
        f"%{name}_mask = arith.constant dense<{(1 << plane.bits) - 1}> : {words}",
        f"%{name}_up = arith.constant dense<{plane.up}> : {words}",
        f"%{name}_at = arith.addi %at{r}, %c{plane.at} : index",
        f"%{name}_stored = vector.load %w[%{name}_at] : {w}, {stored}",
        f"%{name}_bytes = vector.shuffle %{name}_stored, %{name}_stored {listed(picked)} : {stored}, {stored}",
        f"%{name}_words = arith.extui %{name}_bytes : vector<16xi8> to {words}",
        f"%{name}_low = arith.shrui %{name}_words, %{name}_right : {words}",
        f"%{name}_only = arith.andi %{name}_low, %{name}_mask : {words}",
        f"%{name} = arith.shli %{name}_only, %{name}_up : {words}",
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
