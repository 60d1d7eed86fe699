"""Lines that read blocks of 32 of a packed weight ``%w``."""

from collections.abc import Sequence

from lang_core import BLOCK, Encoding, Plane
from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import listed


def weight_buffer(outputs: int, columns: int, encoding: Encoding) -> Buffer:
    """Returns the packed weight w of so many rows."""
    return Buffer("w", outputs * (columns // encoding.block) * encoding.block_bytes, "i8")


def packed_buffers(
    rows: int, outputs: int, columns: int, encoding: Encoding, dtype: str = "f32", planes: int = 1
) -> tuple[Buffer, ...]:
    """Returns q [rows, planes, columns], scale and total of x, the packed weight w, and the result y of a dtype."""
    blocks = columns // BLOCK
    return (
        Buffer("q", rows * planes * columns, "i8"),
        Buffer("scale", rows * blocks, "f32"),
        Buffer("total", rows * blocks, "i32"),
        weight_buffer(outputs, columns, encoding),
        Buffer("y", rows * outputs, dtype),
    )


def half(name: str, place: str, w: str) -> list[str]:
    """Makes ``%name`` vector<1xf16> of the two bytes at an index, the scale of a block.

    Args:
        name: name of the result; another value's name begins with it.
        place: index of the first byte.
        w: type of the weight.
    """
    return [
        f"%{name}_bytes = vector.load %w[{place}] : {w}, vector<2xi8>",
        f"%{name} = vector.bitcast %{name}_bytes : vector<2xi8> to vector<1xf16>",
    ]


def block_scale(encoding: Encoding, begin: str, name: str, w: str) -> list[str]:
    """Makes ``%name`` f32, d of the block at ``begin``."""
    return [*scales_of_blocks(encoding, [begin], f"{name}_alone", w), _only(name, f"{name}_alone")]


def _only(name: str, vector: str) -> str:
    """Makes ``%name`` f32 of a vector<1xf32>."""
    return f"%{name} = vector.extract %{vector}[0] : f32 from vector<1xf32>"


def _power_of_two(begin: str, name: str, w: str) -> list[str]:
    """Makes ``%name`` f32, 2**(e - 128) of the byte e at ``begin``.

    The two least, which are subnormal in f32, are 0: a CPU's threads flush them.
    """
    return [
        f"%{name}_one = arith.constant 1 : i32",
        f"%{name}_up = arith.constant 23 : i32",
        f"%{name}_byte = vector.load %w[{begin}] : {w}, vector<1xi8>",
        f"%{name}_narrow = vector.extract %{name}_byte[0] : i8 from vector<1xi8>",
        f"%{name}_e = arith.extui %{name}_narrow : i8 to i32",
        f"%{name}_least = arith.maxui %{name}_e, %{name}_one : i32",
        f"%{name}_less = arith.subi %{name}_least, %{name}_one : i32",
        f"%{name}_bits = arith.shli %{name}_less, %{name}_up : i32",
        f"%{name} = arith.bitcast %{name}_bits : i32 to f32",
    ]


def looked_up(table: Sequence[int], stored: str, name: str, lanes: int) -> list[str]:
    """Makes ``%name`` of the entries of a table of sixteen numbers at integers of four bits, vector<lanes x i8> both.

    Each bit of the integers halves the numbers that are left, so any CPU has the instructions.
    """
    kind, masks = f"vector<{lanes}xi8>", f"vector<{lanes}xi1>"
    lines = [f"%{name}_zero = arith.constant dense<0> : {kind}"]
    values = [f"%{name}_entry{i}" for i in range(len(table))]
    lines += [f"{value} = arith.constant dense<{n}> : {kind}" for value, n in zip(values, table, strict=True)]
    for bit in range(4):
        lines += [
            f"%{name}_bit{bit} = arith.constant dense<{1 << bit}> : {kind}",
            f"%{name}_only{bit} = arith.andi {stored}, %{name}_bit{bit} : {kind}",
            f"%{name}_is{bit} = arith.cmpi ne, %{name}_only{bit}, %{name}_zero : {kind}",
        ]
        halved = [f"%{name}_of{bit}_{i}" for i in range(len(values) // 2)] if bit < 3 else [f"%{name}"]
        for i, value in enumerate(halved):
            low, high = values[2 * i : 2 * i + 2]
            lines.append(f"{value} = arith.select %{name}_is{bit}, {high}, {low} : {masks}, {kind}")
        values = halved
    return lines


def scales_of_blocks(encoding: Encoding, begins: Sequence[str], name: str, w: str) -> list[str]:
    """Makes ``%name`` f32, d of the blocks at ``begins``, converted together: one alone waits for the one before it."""
    if not encoding.layout.exponent:
        return _floats_of_halves(begins, name, w)
    names = [f"{name}_of{i}" for i in range(len(begins))]
    lines = [line for own, begin in zip(names, begins, strict=True) for line in _power_of_two(begin, own, w)]
    return [*lines, f"%{name} = vector.from_elements {_values(names)} : vector<{len(names)}xf32>"]


def minima_of_blocks(encoding: Encoding, begins: Sequence[str], name: str, w: str) -> list[str]:
    """Makes ``%name`` f32, the addend of each weight of the blocks at ``begins``."""
    layout, kind = encoding.layout, f"vector<{len(begins)}xf32>"
    signed, lines = name if layout.adds_minimum else f"{name}_below", list[str]()
    for i, begin in enumerate(begins):
        lines += [
            f"%{name}_skip{i} = arith.constant {layout.minimum} : index",
            f"%{name}_at{i} = arith.addi {begin}, %{name}_skip{i} : index",
        ]
    lines += _floats_of_halves([f"%{name}_at{i}" for i in range(len(begins))], signed, w)
    return [*lines, *([] if layout.adds_minimum else [f"%{name} = arith.negf %{signed} : {kind}"])]


def _floats_of_halves(places: Sequence[str], name: str, w: str) -> list[str]:
    """Makes ``%name`` f32 of the f16 at places."""
    count, lines, names = len(places), list[str](), [f"{name}_half{i}" for i in range(len(places))]
    for own, place in zip(names, places, strict=True):
        lines += [
            *half(f"{own}_there", place, w),
            f"%{own} = vector.extract %{own}_there[0] : f16 from vector<1xf16>",
        ]
    return [
        *lines,
        f"%{name}_halves = vector.from_elements {_values(names)} : vector<{count}xf16>",
        f"%{name} = arith.extf %{name}_halves : vector<{count}xf16> to vector<{count}xf32>",
    ]


def _values(names: Sequence[str]) -> str:
    return ", ".join(f"%{name}" for name in names)


def unsigned_offset(encoding: Encoding) -> int:
    """Returns by how much the integers exceed their values when they are read as unsigned."""
    return 128 if encoding.bits == 8 else encoding.layout.offset


def block_minimum(encoding: Encoding, begin: str, name: str, w: str) -> list[str]:
    """Makes ``%name`` f32, the addend of each weight of a block at ``begin``."""
    return [*minima_of_blocks(encoding, [begin], f"{name}_alone", w), _only(name, f"{name}_alone")]


def stored_block(encoding: Encoding, begin: str, place: str, name: str, w: str) -> list[str]:
    """Makes ``%name`` vector<32xi8> of a block's integers as they are stored: signed 8 bits, or fewer without a sign.

    Args:
        encoding: encoding of the weight.
        begin: index of the block.
        place: index of the first byte of its first plane.
        name: name of the result; other names begin with it.
        w: type of the weight.

    It needs ``%nibble`` and ``%four``, vector<16xi8>.
    """
    if encoding.bits == 8:
        return [f"%{name} = vector.load %w[{place}] : {w}, vector<32xi8>"]
    _, *others = encoding.layout.planes
    nibbles = f"{name}_nibbles" if others else name
    return [
        f"%{name}_both = vector.load %w[{place}] : {w}, vector<16xi8>",
        f"%{name}_low = arith.andi %{name}_both, %nibble : vector<16xi8>",
        f"%{name}_high = arith.shrui %{name}_both, %four : vector<16xi8>",
        f"%{nibbles} = vector.shuffle %{name}_low, %{name}_high {listed(range(BLOCK))} : vector<16xi8>, vector<16xi8>",
        *(line for plane in others for line in _with_bits(plane, begin, nibbles, name, w)),
    ]


def _with_bits(plane: Plane, begin: str, nibbles: str, name: str, w: str) -> list[str]:
    """Makes ``%name`` of the nibbles and a bit of each integer, in their order: four bytes are a mask of 32 lanes."""
    kind = f"vector<{BLOCK}xi8>"
    return [
        f"%{name}_bits_skip = arith.constant {plane.at} : index",
        f"%{name}_bits_at = arith.addi {begin}, %{name}_bits_skip : index",
        f"%{name}_bytes = vector.load %w[%{name}_bits_at] : {w}, vector<4xi8>",
        f"%{name}_mask = vector.bitcast %{name}_bytes : vector<4xi8> to vector<{BLOCK}xi1>",
        f"%{name}_bits = arith.extui %{name}_mask : vector<{BLOCK}xi1> to {kind}",
        f"%{name}_up = arith.constant dense<{plane.up}> : {kind}",
        f"%{name}_top = arith.shli %{name}_bits, %{name}_up : {kind}",
        f"%{name} = arith.ori %{nibbles}, %{name}_top : {kind}",
    ]


def signed_block(encoding: Encoding, begin: str, place: str, name: str, w: str) -> list[str]:
    """Makes ``%name`` as ``stored_block`` does, of the integers' values; it also needs ``%offset`` vector<32xi8>."""
    if encoding.layout.table is not None:
        return [
            *stored_block(encoding, begin, place, f"{name}_stored", w),
            *looked_up(encoding.layout.table, f"%{name}_stored", name, BLOCK),
        ]
    if encoding.bits == 8 or not encoding.layout.offset:
        return stored_block(encoding, begin, place, name, w)
    return [
        *stored_block(encoding, begin, place, f"{name}_stored", w),
        f"%{name} = arith.subi %{name}_stored, %offset : vector<32xi8>",
    ]
