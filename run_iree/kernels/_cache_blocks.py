"""Blocks of quantized caches, q8_0 and q4_0 as ggml lays them out: packed from x, and read as registers."""

from typing import Final

from lang_core import Encoding
from lang_core.ops import LEAST_MAGNITUDE
from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import CpuKernel, constants, indented, listed, loaded, own_rows, share

NAME: Final = "vector-cache-blocks"
_LANES: Final = 16
_BYTE: Final = 8
_HALF_BYTES: Final = 2
_HALF_LIMIT: Final = 65520.0  # the least magnitude that f16 rounds to infinity
_BLOCKS: Final = 32  # of a workgroup
_FLOATS: Final = "vector<16xf32>"
_INTS: Final = "vector<16xi32>"


def cache_blocks_kernel(rows: int, columns: int, encoding: Encoding, dtype: str) -> CpuKernel:
    """Builds x [rows, columns] of a dtype: y i8 [rows, bytes], the blocks of an encoding."""
    blocks = rows * columns // encoding.block
    x, y = Buffer("x", rows * columns, dtype), Buffer("y", blocks * encoding.block_bytes, "i8")
    own, workgroups = share(blocks, 1, -(-blocks // _BLOCKS))
    signed = encoding.bits < _BYTE
    block = [
        f"%i = arith.muli %block, %c{encoding.block} : index",
        f"%j = arith.addi %i, %c{_LANES} : index",
        *loaded("low_x", "%i", x),
        *loaded("high_x", "%j", x),
        f"%at = arith.muli %block, %c{encoding.block_bytes} : index",
        f"%numbers_at = arith.addi %at, %c{_HALF_BYTES} : index",
        f"%low_size = math.absf %low_x : {_FLOATS}",
        f"%high_size = math.absf %high_x : {_FLOATS}",
        f"%size = arith.maximumf %low_size, %high_size : {_FLOATS}",
        f"%most_x = vector.reduction <maximumf>, %size : {_FLOATS} into f32",
        "%finite = arith.cmpf olt, %most_x, %infinite : f32",
        "%large = arith.cmpf oge, %most_x, %least : f32",
        "%kept = arith.andi %finite, %large : i1",
        "%most = arith.select %kept, %most_x, %zero : f32",
        f"%low = arith.select %kept, %low_x, %zeros : {_FLOATS}",
        f"%high = arith.select %kept, %high_x, %zeros : {_FLOATS}",
        *(_signed_scale() if signed else ["%scale = arith.divf %most, %largest : f32"]),
        "%divisor = arith.select %kept, %scale, %one : f32",
        "%inverse = arith.divf %one, %divisor : f32",
        f"%by = vector.broadcast %inverse : f32 to {_FLOATS}",
        f"%low_scaled = arith.mulf %low, %by : {_FLOATS}",
        f"%high_scaled = arith.mulf %high, %by : {_FLOATS}",
        "%scale_size = math.absf %scale : f32",
        "%within = arith.cmpf olt, %scale_size, %limit : f32",
        "%good = arith.andi %finite, %within : i1",
        "%stored_scale = arith.select %good, %scale, %nan : f32",
        "%half = arith.truncf %stored_scale : f32 to f16",
        "%half_one = vector.broadcast %half : f16 to vector<1xf16>",
        "%half_bytes = vector.bitcast %half_one : vector<1xf16> to vector<2xi8>",
        f"vector.store %half_bytes, %y[%at] : {y.memref}, vector<2xi8>",
        *(_nibbles(y) if signed else _bytes(y)),
    ]
    body = f"""\
{constants([1, _HALF_BYTES, _LANES, encoding.block, encoding.block_bytes, own, blocks])}
%zero = arith.constant 0.0 : f32
%one = arith.constant 1.0 : f32
%nan = arith.constant 0x7FC00000 : f32
%infinite = arith.constant 0x7F800000 : f32
%limit = arith.constant {_HALF_LIMIT} : f32
%least = arith.constant {LEAST_MAGNITUDE:.17e} : f32
%largest = arith.constant 127.0 : f32
%zeros = arith.constant dense<0.0> : {_FLOATS}
{indented(_signed_constants(encoding.bits) if signed else _byte_constants(), 0)}
{own_rows(own, blocks)}
scf.for %block = %first to %end step %c1 {{
{indented(block, 2)}
}}
"""
    return CpuKernel(NAME, (x, y), workgroups, body)


def _byte_constants() -> list[str]:
    return [f"%below_half = arith.constant dense<0x3EFFFFFF> : {_FLOATS}"]  # with 1/2 0.49999997 would become 1


def _bytes(y: Buffer) -> list[str]:
    """Stores integers of 8 bits, halves rounded away from 0."""
    lines = [f"%high_at = arith.addi %numbers_at, %c{_LANES} : index"]
    for side, place in (("low", "%numbers_at"), ("high", "%high_at")):
        lines += [
            f"%{side}_step = math.copysign %below_half, %{side}_scaled : {_FLOATS}",
            f"%{side}_beyond = arith.addf %{side}_scaled, %{side}_step : {_FLOATS}",
            f"%{side}_whole = arith.fptosi %{side}_beyond : {_FLOATS} to {_INTS}",
            f"%{side}_byte = arith.trunci %{side}_whole : {_INTS} to vector<16xi8>",
            f"vector.store %{side}_byte, %y[{place}] : {y.memref}, vector<16xi8>",
        ]
    return lines


def _signed_constants(bits: int) -> list[str]:
    return [
        f"%low_lane = arith.constant dense<{listed(range(_LANES))}> : {_INTS}",
        f"%high_lane = arith.constant dense<{listed(range(_LANES, 2 * _LANES))}> : {_INTS}",
        f"%no_lane = arith.constant dense<{2 * _LANES}> : {_INTS}",
        f"%part = arith.constant {-1 / (1 << bits - 1)} : f32",
        f"%middle = arith.constant dense<{(1 << bits - 1) + 0.5}> : {_FLOATS}",
        f"%most_whole = arith.constant dense<{(1 << bits) - 1}> : {_INTS}",
        f"%bits = arith.constant dense<{bits}> : {_INTS}",
    ]


def _signed_scale() -> list[str]:
    """Makes ``%scale``: the first number with the largest magnitude becomes the least integer."""
    lines = ["%minus_most = arith.negf %most : f32"]
    for sign, value in (("plus", "%most"), ("minus", "%minus_most")):
        lines.append(f"%{sign}_all = vector.broadcast {value} : f32 to {_FLOATS}")
        for side in ("low", "high"):
            lines += [
                f"%{sign}_{side} = arith.cmpf oeq, %{side}, %{sign}_all : {_FLOATS}",
                f"%{sign}_{side}_lane = arith.select %{sign}_{side}, %{side}_lane, %no_lane : vector<16xi1>, {_INTS}",
            ]
        lines += [
            f"%{sign}_lane = arith.minsi %{sign}_low_lane, %{sign}_high_lane : {_INTS}",
            f"%{sign}_first = vector.reduction <minsi>, %{sign}_lane : {_INTS} into i32",
        ]
    return [
        *lines,
        "%is_plus = arith.cmpi sle, %plus_first, %minus_first : i32",
        "%extreme = arith.select %is_plus, %most, %minus_most : f32",
        "%scale = arith.mulf %extreme, %part : f32",
    ]


def _nibbles(y: Buffer) -> list[str]:
    """Stores integers of 4 bits: in a byte one of the first sixteen and, above it, one of the last."""
    lines = []
    for side in ("low", "high"):
        lines += [
            f"%{side}_above = arith.addf %{side}_scaled, %middle : {_FLOATS}",
            f"%{side}_down = arith.fptosi %{side}_above : {_FLOATS} to {_INTS}",
            f"%{side}_whole = arith.minsi %{side}_down, %most_whole : {_INTS}",
        ]
    return [
        *lines,
        f"%high_up = arith.shli %high_whole, %bits : {_INTS}",
        f"%pair = arith.ori %low_whole, %high_up : {_INTS}",
        f"%pair_byte = arith.trunci %pair : {_INTS} to vector<16xi8>",
        f"vector.store %pair_byte, %y[%numbers_at] : {y.memref}, vector<16xi8>",
    ]


def block_constants(encoding: Encoding) -> list[str]:
    """Returns the constants that the lines of ``read_block`` need."""
    offset = [f"%block_offset = arith.constant dense<{encoding.layout.offset}> : {_INTS}"]
    shift = [f"%block_shift = arith.constant dense<{encoding.bits}> : vector<16xi8>"]
    mask = [f"%block_mask = arith.constant dense<{(1 << encoding.bits) - 1}> : vector<16xi8>"]
    return [
        f"%block_numbers = arith.constant {_HALF_BYTES} : index",
        f"%block_half = arith.constant {_HALF_BYTES + _LANES} : index",
        *([] if encoding.bits == _BYTE else [*offset, *shift, *mask]),
    ]


def read_block(names: tuple[str, str], at: str, buffer: Buffer, encoding: Encoding) -> list[str]:
    """Makes the halves of a block, vector<16xf32> by their names without ``%``, exactly as they unpack.

    Args:
        names: of the first sixteen numbers and the last.
        at: index of the block's first byte.
        buffer: bytes.
        encoding: q8_0 or q4_0.
    """
    low, high = names
    lines = [
        f"%{low}_pair = vector.load %{buffer.name}[{at}] : {buffer.memref}, vector<2xi8>",
        f"%{low}_half = vector.bitcast %{low}_pair : vector<2xi8> to vector<1xf16>",
        f"%{low}_number = vector.extract %{low}_half[0] : f16 from vector<1xf16>",
        f"%{low}_scale = arith.extf %{low}_number : f16 to f32",
        f"%{low}_by = vector.broadcast %{low}_scale : f32 to {_FLOATS}",
        f"%{low}_place = arith.addi {at}, %block_numbers : index",
        f"%{low}_bytes = vector.load %{buffer.name}[%{low}_place] : {buffer.memref}, vector<16xi8>",
    ]
    if encoding.bits == _BYTE:
        lines += [
            f"%{high}_place = arith.addi {at}, %block_half : index",
            f"%{high}_bytes = vector.load %{buffer.name}[%{high}_place] : {buffer.memref}, vector<16xi8>",
        ]
        for name in names:
            lines.append(f"%{name}_whole = arith.extsi %{name}_bytes : vector<16xi8> to {_INTS}")
    else:
        lines += [
            f"%{low}_bits = arith.andi %{low}_bytes, %block_mask : vector<16xi8>",
            f"%{high}_bits = arith.shrui %{low}_bytes, %block_shift : vector<16xi8>",
        ]
        for name in names:
            lines += [
                f"%{name}_stored = arith.extui %{name}_bits : vector<16xi8> to {_INTS}",
                f"%{name}_whole = arith.subi %{name}_stored, %block_offset : {_INTS}",
            ]
    for name in names:
        lines += [
            f"%{name}_float = arith.sitofp %{name}_whole : {_INTS} to {_FLOATS}",
            f"%{name} = arith.mulf %{name}_float, %{low}_by : {_FLOATS}",
        ]
    return lines
