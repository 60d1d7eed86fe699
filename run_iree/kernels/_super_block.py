"""Lines that read super-blocks of a packed weight ``%w``, generated from the layout of its encoding.

lang_core/_layouts.py has the layouts: planes of bits, and scales and minima of the parts of a super-block.

Names of values end with the number ``r`` of a row, or with nothing where a kernel reads one row at a time.
"""

from collections.abc import Sequence
from typing import Final

from lang_core import BitField, BlockLayout, Encoding, Plane
from run_iree.kernels._packed_row import half
from run_iree.kernels._text import listed

CHUNK: Final = 64  # columns whose bytes fill a register of 512 bits
_BYTES: Final = f"vector<{CHUNK}xi8>"
_PAIRS: Final = f"vector<{CHUNK // 2}xi16>"
_SUMS: Final = "vector<16xf32>"


def super_block_constants(encoding: Encoding) -> list[str]:
    """Returns the vectors that ``part_scales`` and ``group_integers`` need, made ahead of all loops."""
    layout, lines = encoding.layout, []
    fields = layout.sub_scales.fields if layout.sub_scales else ()
    for i, field in enumerate(fields):
        words = f"vector<{len(field.words)}xi32>"
        lines += [
            f"%k_right{i} = arith.constant dense<{listed(field.right)}> : {words}",
            f"%k_mask{i} = arith.constant dense<{listed(field.masks)}> : {words}",
        ]
    for i, plane in enumerate(layout.planes):
        if plane.bits == 4:
            kind = f"vector<{plane.span}xi8>"
            lines += [
                f"%k_nibble = arith.constant dense<15> : {kind}",
                f"%k_four = arith.constant dense<4> : {kind}",
            ]
            continue
        lines.append(f"%k_bits{i} = arith.constant dense<{((1 << plane.bits) - 1) << plane.up}> : {_BYTES}")
        for chunk in range(plane.run // CHUNK):
            for name, amounts in _shifts(plane, chunk):
                lines.append(f"%k_{name}{i}_{chunk} = arith.constant dense<{listed(amounts)}> : {_PAIRS}")
    return lines


def super_block_numbers(encoding: Encoding) -> list[int]:
    """Returns the index constants that ``part_scales`` and ``group_integers`` need: bytes of a block."""
    layout = encoding.layout
    places = [place for group in range(groups(layout)) for place in group_bytes(layout, group)]
    return [*places, layout.sub_scales.at if layout.sub_scales else 0, *layout.halves]


def part_scales(encoding: Encoding, r: int | str, w: str, order: Sequence[int] = range(16)) -> list[str]:
    """Makes ``%scaled<r>`` vector<16xf32> of the scales of the super-block at ``%at<r>``.

    They are ``d * sc`` of sixteen parts, or of eight parts and then their ``dmin * m``.

    Args:
        encoding: encoding of the weight.
        r: number of the row, at the end of all names.
        w: type of the weight.
        order: which scale each lane gets, for scales that are bytes.
    """
    layout = encoding.layout
    scales = layout.sub_scales
    assert scales is not None
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


def chunks_of_group(layout: BlockLayout) -> int:
    """Returns how many chunks of 64 columns are read together, because they share bytes."""
    return max(plane.run for plane in layout.planes) // CHUNK


def groups(layout: BlockLayout) -> int:
    """Returns how many groups of chunks a super-block has."""
    return layout.size // CHUNK // chunks_of_group(layout)


def group_bytes(layout: BlockLayout, group: int) -> list[int]:
    """Returns the first byte of each run of bytes that a group needs, plane by plane."""
    columns = chunks_of_group(layout) * CHUNK
    return [
        plane.at + (group * columns + column) * plane.bits // 8
        for plane in layout.planes
        for column in range(0, columns, plane.run)
    ]


def group_integers(encoding: Encoding, r: int | str, group: int, w: str, places: Sequence[str] = ()) -> list[str]:
    """Makes ``%u<r>_<chunk>`` vector<64xi8> of the unsigned integers of each chunk of a group.

    Args:
        encoding: encoding of the weight.
        r: number of the row, whose block begins at ``%at<r>``.
        group: number of the group.
        w: type of the weight.
        places: indices of ``group_bytes``, where a kernel has computed them itself.
    """
    layout, count = encoding.layout, chunks_of_group(encoding.layout)
    lines: list[str] = []
    if not places:
        places = [f"%place{r}_{group}_{i}" for i in range(len(group_bytes(layout, group)))]
        for place, byte in zip(places, group_bytes(layout, group), strict=True):
            lines.append(f"{place} = arith.addi %at{r}, %c{byte} : index")
    runs = [(i, plane, first) for i, plane in enumerate(layout.planes) for first in range(0, count, plane.run // CHUNK)]
    for (i, plane, first), place in zip(runs, places, strict=True):
        name = f"%stored{r}_{group}_{i}_{first}"
        lines.append(f"{name} = vector.load %w[{place}] : {w}, vector<{plane.span}xi8>")
    parts: dict[int, list[str]] = {}
    for i, plane, first in reversed(runs):
        read = _nibbles if plane.bits == 4 else _bits
        chunks = range(first, first + plane.run // CHUNK)
        names = [_part(layout, i, f"{r}_{group * count + chunk}") for chunk in chunks]
        lines += read(i, plane, f"%stored{r}_{group}_{i}_{first}", names)
        for chunk, name in zip(chunks, names, strict=True):
            parts.setdefault(chunk, []).insert(0, name)
    for chunk in range(count):
        joined, *others = parts[chunk]
        for i, other in enumerate(others):
            name = f"%u{r}_{group * count + chunk}" + (f"_{i}" if i < len(others) - 1 else "")
            lines.append(f"{name} = arith.ori {joined}, {other} : {_BYTES}")
            joined = name
    return lines


def _part(layout: BlockLayout, plane: int, chunk: str) -> str:
    """Returns the name of a plane's bits of a chunk; of a plane that is alone they are the integers."""
    return f"%u{chunk}" if len(layout.planes) == 1 else f"%u{chunk}_plane{plane}"


def _nibbles(i: int, plane: Plane, stored: str, names: Sequence[str]) -> list[str]:
    """Makes the four bits of one chunk (32 bytes) or of two (64 bytes)."""
    del i
    kind = f"vector<{plane.span}xi8>"
    if len(names) == 2:
        return [
            f"{names[0]} = arith.andi {stored}, %k_nibble : {kind}",
            f"{names[1]} = arith.shrui {stored}, %k_four : {kind}",
        ]
    (name,) = names
    return [
        f"{name}_low = arith.andi {stored}, %k_nibble : {kind}",
        f"{name}_high = arith.shrui {stored}, %k_four : {kind}",
        f"{name} = vector.shuffle {name}_low, {name}_high {listed(range(CHUNK))} : {kind}, {kind}",
    ]


def _bits(i: int, plane: Plane, stored: str, names: Sequence[str]) -> list[str]:
    """Makes one or two bits of each chunk, at their position in the integer, of 32 bytes shifted twice."""
    twice, kind = listed([*range(plane.span)] * 2), f"vector<{plane.span}xi8>"
    lines = [
        f"{stored}_twice = vector.shuffle {stored}, {stored} {twice} : {kind}, {kind}",
        f"{stored}_pairs = vector.bitcast {stored}_twice : {_BYTES} to {_PAIRS}",
    ]
    casts, masks = [], []
    for chunk, name in enumerate(names):
        value = f"{stored}_pairs"
        for direction, _ in _shifts(plane, chunk):
            op = "shli" if direction == "up" else "shrui"
            lines.append(f"{name}_{direction} = arith.{op} {value}, %k_{direction}{i}_{chunk} : {_PAIRS}")
            value = f"{name}_{direction}"
        casts.append(f"{name}_bytes = vector.bitcast {value} : {_PAIRS} to {_BYTES}")
        masks.append(f"{name} = arith.andi {name}_bytes, %k_bits{i} : {_BYTES}")
    return [*lines, *casts, *masks]


def _shifts(plane: Plane, chunk: int) -> list[tuple[str, list[int]]]:
    """Returns the shifts, ``up`` or ``down``, that bring a chunk's bits to their position, by pairs of bytes.

    What a byte takes from its neighbour in the pair lies outside of the mask.
    """
    groups_of = CHUNK // plane.span
    down = [plane.bits * (chunk * groups_of + i) - plane.up for i in range(groups_of)]
    lanes = CHUNK // 2 // groups_of
    shifts = [("up", [-by for by in down]), ("down", down)]
    return [
        (name, [max(by, 0) for by in amounts for _ in range(lanes)])
        for name, amounts in shifts
        if any(by > 0 for by in amounts)
    ]
