"""Parts of kernels that read packed rows."""

from lang_core import BLOCK, Encoding
from run_iree.kernels._text import Buffer, listed


def unsigned_offset(encoding: Encoding) -> int:
    """What the integers are above their values when they are taken as unsigned."""
    return 1 << (encoding.bits - 1)


def packed_buffers(rows: int, outputs: int, columns: int, encoding: Encoding, dtype: str = "f32") -> tuple[Buffer, ...]:
    """q, scale, total, the packed weight, and the result y of a dtype."""
    blocks = columns // BLOCK
    return (
        Buffer("q", rows * columns, "i8"),
        Buffer("scale", rows * blocks, "f32"),
        Buffer("total", rows * blocks, "i32"),
        Buffer("w", outputs * (columns // encoding.block) * encoding.block_bytes, "i8"),
        Buffer("y", rows * outputs, dtype),
    )


def half(name: str, place: str, w: str) -> list[str]:
    """Lines that make ``%name`` vector<1xf16> of the two bytes at an index, a block's scale.

    Args:
        name: of the result; another begins with it.
        place: the index.
        w: the weight's type.
    """
    return [
        f"%{name}_bytes = vector.load %w[{place}] : {w}, vector<2xi8>",
        f"%{name} = vector.bitcast %{name}_bytes : vector<2xi8> to vector<1xf16>",
    ]


def stored_block(encoding: Encoding, place: str, name: str, w: str) -> list[str]:
    """Lines that make ``%name`` vector<32xi8> of a block's integers as they are stored: signed 8 bits, unsigned 4.

    Args:
        encoding: of the weight.
        place: the index of the first.
        name: of the result; others begin with it.
        w: the weight's type.

    ``%nibble`` and ``%four`` (vector<16xi8>) are to be there.
    """
    if encoding.bits == 8:
        return [f"%{name} = vector.load %w[{place}] : {w}, vector<32xi8>"]
    return [
        f"%{name}_both = vector.load %w[{place}] : {w}, vector<16xi8>",
        f"%{name}_low = arith.andi %{name}_both, %nibble : vector<16xi8>",
        f"%{name}_high = arith.shrui %{name}_both, %four : vector<16xi8>",
        f"%{name} = vector.shuffle %{name}_low, %{name}_high {listed(range(BLOCK))} : vector<16xi8>, vector<16xi8>",
    ]


def signed_block(encoding: Encoding, place: str, name: str, w: str) -> list[str]:
    """As ``stored_block``, of the integers' values; ``%offset`` (vector<32xi8>) is to be there, too."""
    if encoding.bits == 8:
        return stored_block(encoding, place, name, w)
    return [
        *stored_block(encoding, place, f"{name}_stored", w),
        f"%{name} = arith.subi %{name}_stored, %offset : vector<32xi8>",
    ]


def unsigned_pair(encoding: Encoding, first: str, second: str, name: str, w: str) -> list[str]:
    """Lines that make ``%name`` vector<64xi8> of the integers of two blocks, unsigned: 32 of each, in their order.

    Args:
        encoding: of the weight.
        first: the index of the first block's integers.
        second: of the second's.
        name: of the result; others begin with it.
        w: the weight's type.

    ``%flip`` (vector<64xi8> of the offset), ``%nibble`` and ``%four`` (vector<32xi8>) are to be there.
    """
    stored = BLOCK * encoding.bits // 8
    kind = f"vector<{stored}xi8>"
    lines = [
        f"%{name}_a = vector.load %w[{first}] : {w}, {kind}",
        f"%{name}_b = vector.load %w[{second}] : {w}, {kind}",
        f"%{name}_ab = vector.shuffle %{name}_a, %{name}_b {listed(range(2 * stored))} : {kind}, {kind}",
    ]
    if encoding.bits == 8:
        return [*lines, f"%{name} = arith.xori %{name}_ab, %flip : vector<64xi8>"]
    order = [*range(16), *range(32, 48), *range(16, 32), *range(48, 64)]
    return [
        *lines,
        f"%{name}_low = arith.andi %{name}_ab, %nibble : vector<32xi8>",
        f"%{name}_high = arith.shrui %{name}_ab, %four : vector<32xi8>",
        f"%{name} = vector.shuffle %{name}_low, %{name}_high {listed(order)} : vector<32xi8>, vector<32xi8>",
    ]
