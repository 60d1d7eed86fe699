"""Emission of what packed blocks say.

Scales are taken apart as integers, for vmvx has no f16. Each step is rounded as the eager rule's is.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from compile_hlo.emit._aligned import cut, joined
from compile_hlo.emit._elementwise import low_bits
from compile_hlo.emit._emitter import Emitter
from compile_hlo.emit._types import integers, tensor_type
from lang_core import Encoding, TensorSpec, f32, i8, i32

# The parts of an f16: 5 bits of exponent with a bias of 15, 10 of mantissa; of an f32: 23 of mantissa, a bias of 127.
_MANTISSA_SHIFT: Final = 13
_BIAS_STEP: Final = (127 - 15) << 23
_SMALLEST: Final = 2.0**-24  # of an f16, and the unit of those without an exponent

_Named = tuple[str, TensorSpec]


def unpacked(e: Emitter, name: str, spec: TensorSpec, encoding: Encoding) -> _Named:
    """Name and spec of the weights, f32 [.., K], of packed blocks i8 [.., bytes]."""
    *leading, width = spec.shape
    count = width // encoding.block_bytes
    blocks = TensorSpec((*leading, count, encoding.block_bytes), i8)
    found, inner = _UNPACKERS[encoding.name](e, (e.reshape(name, spec, blocks.shape), blocks))
    result = TensorSpec((*leading, count * encoding.block), f32)
    return e.reshape(found, inner, result.shape), result


def _q8_0(e: Emitter, blocks: _Named) -> _Named:
    return _scaled(e, _part(e, blocks, 2, 34), _half(e, blocks, 0))


def _q4_0(e: Emitter, blocks: _Named) -> _Named:
    name, spec = _bits(e, _part(e, blocks, 2, 18))
    stored, wide = joined(e, [(_nibble(e, name, spec, place), spec) for place in (0, 1)], spec.ndim - 1)
    return _scaled(e, (_op(e, "subtract", stored, 8, wide), wide), _half(e, blocks, 0))


def _q4_k(e: Emitter, blocks: _Named) -> _Named:
    """``(d * sc) * q - (dmin * m)`` of eight sub-blocks of 32."""
    (low, small), (mins, _), (high, _) = (_bits(e, _part(e, blocks, start, start + 4)) for start in (4, 8, 12))

    def sixes(first: str, rest: str) -> _Named:
        upper = _op(e, "and", _op(e, "shift_right_logical", first, 2, small), 48, small)
        both = _op(e, "or", upper, rest, small)
        return joined(e, [(_op(e, "and", first, 63, small), small), (both, small)], small.ndim - 1)

    scale = _scaled(e, sixes(low, _nibble(e, high, small, 0)), _half(e, blocks, 0))
    minimum = _scaled(e, sixes(mins, _nibble(e, high, small, 1)), _half(e, blocks, 2))
    stored = _shaped(e, _bits(e, _part(e, blocks, 16, 144)), (4, 1, 32))
    nibbles = [(_nibble(e, *stored, place), stored[1]) for place in (0, 1)]
    q = _shaped(e, joined(e, nibbles, stored[1].ndim - 2), (8, 32), of=3)
    product, cube = _scaled(e, q, scale)
    return e.new(f"stablehlo.subtract {product}, {_spread(e, minimum, cube)} : {tensor_type(cube)}"), cube


def _q6_k(e: Emitter, blocks: _Named) -> _Named:
    """``(d * sc) * (q - 32)`` of sixteen sub-blocks of 16."""
    stored = _shaped(e, _bits(e, _part(e, blocks, 0, 128)), (2, 1, 64))
    nibbles = [(_nibble(e, *stored, place), stored[1]) for place in (0, 1)]
    low, spec = _shaped(e, joined(e, nibbles, stored[1].ndim - 2), (16, 16), of=3)
    pairs, each = _shaped(e, _bits(e, _part(e, blocks, 128, 192)), (2, 1, 32))
    shifted = [_op(e, "shift_right_logical", pairs, shift, each) if shift else pairs for shift in (0, 2, 4, 6)]
    high, _ = _shaped(e, joined(e, [(name, each) for name in shifted], each.ndim - 2), (16, 16), of=3)
    high = _op(e, "shift_left", _op(e, "and", high, 3, spec), 4, spec)
    q = _op(e, "subtract", _op(e, "or", low, high, spec), 32, spec)
    scale = _scaled(e, _part(e, blocks, 192, 208), _half(e, blocks, 208))
    return _scaled(e, (q, spec), scale)


_UNPACKERS: Final[Mapping[str, Callable[[Emitter, _Named], _Named]]] = MappingProxyType(
    {"q8_0": _q8_0, "q4_0": _q4_0, "q4_k": _q4_k, "q6_k": _q6_k}
)


def _part(e: Emitter, blocks: _Named, start: int, stop: int) -> _Named:
    """Bytes of every block, i8."""
    name, spec = blocks
    return cut(e, name, spec, [*((0, dim) for dim in spec.shape[:-1]), (start, stop)])


def _bits(e: Emitter, part: _Named) -> _Named:
    """Bytes as i32 of 0 .. 255."""
    name, spec = part
    return low_bits(e, name, spec), TensorSpec(spec.shape, i32)


def _half(e: Emitter, blocks: _Named, place: int) -> _Named:
    """The f16 of every block whose first byte has this place: f32 [.., 1]."""
    (low, spec), (high, _) = (_bits(e, _part(e, blocks, at, at + 1)) for at in (place, place + 1))
    return _float_of_half(e, low, high, spec), TensorSpec(spec.shape, f32)


def _nibble(e: Emitter, name: str, spec: TensorSpec, place: int) -> str:
    """The low (0) or the high (1) four bits of i32 of 0 .. 255."""
    return _op(e, "shift_right_logical", name, 4, spec) if place else _op(e, "and", name, 15, spec)


def _shaped(e: Emitter, value: _Named, last: tuple[int, ...], of: int = 1) -> _Named:
    """With ``last`` in the place of the last axis, or of the last ``of``."""
    name, spec = value
    shape = (*spec.shape[:-of], *last)
    return e.reshape(name, spec, shape), TensorSpec(shape, spec.dtype)


def _scaled(e: Emitter, value: _Named, scale: _Named) -> _Named:
    """Integers as f32, times scales: [.., n] of [.., 1], or [.., m, n] of [.., m]."""
    name, spec = value
    cube = TensorSpec(spec.shape, f32)
    wide = _spread(e, scale, cube)
    return e.new(f"stablehlo.multiply {e.convert(name, spec, f32)}, {wide} : {tensor_type(cube)}"), cube


def _spread(e: Emitter, value: _Named, wanted: TensorSpec) -> str:
    """A number for every row of the last axis, on all of it."""
    name, spec = value
    dims, kinds = integers(tuple(range(spec.ndim))), (tensor_type(spec), tensor_type(wanted))
    return e.new(f"stablehlo.broadcast_in_dim {name}, dims = {dims} : ({kinds[0]}) -> {kinds[1]}")


def _op(e: Emitter, name: str, x: str, y: int | str, spec: TensorSpec) -> str:
    """An op on i32 and another, or a number."""
    other = y if isinstance(y, str) else e.constant(i32.numpy.type(y), spec)
    return e.new(f"stablehlo.{name} {x}, {other} : {tensor_type(spec)}")


def _float_of_half(e: Emitter, low: str, high: str, spec: TensorSpec) -> str:
    """The f32 of an f16 whose two bytes are given as i32: exact, of numbers that the f16 has no exponent for, too."""

    def op(name: str, x: str, number: int | str) -> str:
        return _op(e, name, x, number, spec)

    floats = TensorSpec(spec.shape, f32)
    wide = tensor_type(floats)
    bits = op("or", op("shift_left", high, 8), low)
    size = op("and", bits, 0x7FFF)
    sign = op("shift_left", op("and", bits, 0x8000), 16)
    normal = op("add", op("shift_left", size, _MANTISSA_SHIFT), _BIAS_STEP)
    above = op("add", normal, _BIAS_STEP)  # infinity and NaN have all bits of the exponent in both
    beyond = e.compare("LE", e.constant(i32.numpy.type(0x7C00), spec), size, spec)
    normal = op("or", e.select(beyond, above, normal, spec), sign)
    normal = e.new(f"stablehlo.bitcast_convert {normal} : ({tensor_type(spec)}) -> {wide}")
    unit = e.constant(f32.numpy.type(_SMALLEST), floats)
    tiny = e.new(f"stablehlo.multiply {e.convert(size, spec, f32)}, {unit} : {wide}")
    negative = e.compare("NE", sign, e.constant(i32.numpy.type(0), spec), spec)
    tiny = e.select(negative, e.new(f"stablehlo.negate {tiny} : {wide}"), tiny, floats)
    without = e.compare("LT", size, e.constant(i32.numpy.type(0x0400), spec), spec)
    return e.select(without, tiny, normal, floats)
