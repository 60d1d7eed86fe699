"""Lines that read super-blocks of a packed weight ``%w``, generated from the layout of its encoding.

lang_core/_layouts.py has the layouts: planes of bits. ``_sub_scales.py`` reads the scales and minima of the parts.

Names of values end with the number ``r`` of a row, or with nothing if a kernel reads one row at a time.
"""

from collections.abc import Sequence
from typing import Final

from lang_core import BlockLayout, Encoding, Plane
from run_iree.kernels._text import listed

CHUNK: Final = 64  # columns whose bytes fill a register of 512 bits
_BYTES: Final = f"vector<{CHUNK}xi8>"
_PAIRS: Final = f"vector<{CHUNK // 2}xi16>"


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
            kind = f"vector<{_loaded(plane)}xi8>"
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
    scales = layout.sub_scales
    small = [] if scales is None else [scales.at, *(plane.at for plane in scales.planes)]
    return [*places, *small, *layout.halves]


def chunks_of_group(layout: BlockLayout) -> int:
    """Returns how many chunks of 64 columns are read together, because they share bytes."""
    return max(_run(plane) for plane in layout.planes) // CHUNK


def _run(plane: Plane) -> int:
    """Returns how many columns are read together of a plane: a run, or as many runs as a chunk has."""
    return max(plane.run, CHUNK)


def _loaded(plane: Plane) -> int:
    """Returns the bytes that hold these columns."""
    return _run(plane) * plane.bits // 8


def groups(layout: BlockLayout) -> int:
    """Returns how many groups of chunks a super-block has."""
    return layout.size // CHUNK // chunks_of_group(layout)


def group_bytes(layout: BlockLayout, group: int) -> list[int]:
    """Returns the first byte of each run of bytes that a group needs, plane by plane."""
    columns = chunks_of_group(layout) * CHUNK
    return [
        plane.at + (group * columns + column) * plane.bits // 8
        for plane in layout.planes
        for column in range(0, columns, _run(plane))
    ]


def group_integers(encoding: Encoding, r: int | str, group: int, w: str) -> list[str]:
    """Makes ``%u<r>_<chunk>`` vector<64xi8> of the unsigned integers of each chunk of a group.

    Args:
        encoding: encoding of the weight.
        r: number of the row, with its block at ``%at<r>``.
        group: number of the group.
        w: type of the weight.
    """
    layout, count = encoding.layout, chunks_of_group(encoding.layout)
    lines: list[str] = []
    places = [f"%place{r}_{group}_{i}" for i in range(len(group_bytes(layout, group)))]
    for place, byte in zip(places, group_bytes(layout, group), strict=True):
        lines.append(f"{place} = arith.addi %at{r}, %c{byte} : index")
    runs = [
        (i, plane, first) for i, plane in enumerate(layout.planes) for first in range(0, count, _run(plane) // CHUNK)
    ]
    for (i, plane, first), place in zip(runs, places, strict=True):
        name = f"%stored{r}_{group}_{i}_{first}"
        lines.append(f"{name} = vector.load %w[{place}] : {w}, vector<{_loaded(plane)}xi8>")
    parts: dict[int, list[str]] = {}
    for i, plane, first in reversed(runs):
        read = _nibbles if plane.bits == 4 else _bits
        chunks = range(first, first + _run(plane) // CHUNK)
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
    """Makes the four bits of one chunk (32 bytes, of one run or of several) or of two (64 bytes)."""
    del i
    kind = f"vector<{_loaded(plane)}xi8>"
    if len(names) == 2:
        return [
            f"{names[0]} = arith.andi {stored}, %k_nibble : {kind}",
            f"{names[1]} = arith.shrui {stored}, %k_four : {kind}",
        ]
    (name,) = names
    runs = [range(first, first + plane.span) for first in range(0, _loaded(plane), plane.span)]
    order = [lane for run in runs for lane in (*run, *(_loaded(plane) + lane for lane in run))]
    return [
        f"{name}_low = arith.andi {stored}, %k_nibble : {kind}",
        f"{name}_high = arith.shrui {stored}, %k_four : {kind}",
        f"{name} = vector.shuffle {name}_low, {name}_high {listed(order)} : {kind}, {kind}",
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

    Bits from the neighbouring byte of the pair lie outside of the mask.
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
