"""Emission of what packed blocks say. Each step is rounded as the eager rule's is."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._elementwise import low_bits
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._slices import cut_last, joined
from lang_core import Encoding, TensorSpec, f16, f32, i32


def unpacked(e: Builder, packed: SsaValue, encoding: Encoding) -> SsaValue:
    """Writes the weights, f32 [.., K], of packed blocks i8 [.., bytes]."""
    *leading, width = packed.spec.shape
    count = width // encoding.block_bytes
    blocks = _shaped(e, packed, (count, encoding.block_bytes))
    weights = _UNPACKERS[encoding.name](e, blocks)
    result = TensorSpec((*leading, count * encoding.block), f32)
    return SsaValue(e.reshape(weights.name, weights.spec, result.shape), result)


def _q8_0(e: Builder, blocks: SsaValue) -> SsaValue:
    return _scaled(e, cut_last(e, blocks, 2, 34), _half(e, blocks, 0))


def _q4_0(e: Builder, blocks: SsaValue) -> SsaValue:
    stored = _bits(e, cut_last(e, blocks, 2, 18))
    nibbles = joined(e, [_nibble(e, stored, place) for place in (0, 1)], stored.spec.ndim - 1)
    return _scaled(e, integer_op(e, "subtract", nibbles, 8), _half(e, blocks, 0))


def _q4_k(e: Builder, blocks: SsaValue) -> SsaValue:
    """Writes ``(d * sc) * q - (dmin * m)`` of eight sub-blocks of 32."""
    low, mins, high = (_bits(e, cut_last(e, blocks, start, start + 4)) for start in (4, 8, 12))

    def sixes(first: SsaValue, rest: SsaValue) -> SsaValue:
        upper = integer_op(e, "and", integer_op(e, "shift_right_logical", first, 2), 48)
        both = integer_op(e, "or", upper, rest)
        return joined(e, [integer_op(e, "and", first, 63), both], first.spec.ndim - 1)

    scale = _scaled(e, sixes(low, _nibble(e, high, 0)), _half(e, blocks, 0))
    minimum = _scaled(e, sixes(mins, _nibble(e, high, 1)), _half(e, blocks, 2))
    stored = _shaped(e, _bits(e, cut_last(e, blocks, 16, 144)), (4, 1, 32))
    nibbles = [_nibble(e, stored, place) for place in (0, 1)]
    q = _shaped(e, joined(e, nibbles, stored.spec.ndim - 2), (8, 32), replaced=3)
    product = _scaled(e, q, scale)
    return SsaValue(
        e.elementwise("subtract", (product.name, _spread(e, minimum, product.spec)), product.spec), product.spec
    )


def _q6_k(e: Builder, blocks: SsaValue) -> SsaValue:
    """Writes ``(d * sc) * (q - 32)`` of sixteen sub-blocks of 16."""
    stored = _shaped(e, _bits(e, cut_last(e, blocks, 0, 128)), (2, 1, 64))
    nibbles = [_nibble(e, stored, place) for place in (0, 1)]
    low = _shaped(e, joined(e, nibbles, stored.spec.ndim - 2), (16, 16), replaced=3)
    pairs = _shaped(e, _bits(e, cut_last(e, blocks, 128, 192)), (2, 1, 32))
    shifted = [integer_op(e, "shift_right_logical", pairs, shift) if shift else pairs for shift in (0, 2, 4, 6)]
    high = _shaped(e, joined(e, shifted, pairs.spec.ndim - 2), (16, 16), replaced=3)
    high = integer_op(e, "shift_left", integer_op(e, "and", high, 3), 4)
    q = integer_op(e, "subtract", integer_op(e, "or", low, high), 32)
    scale = _scaled(e, cut_last(e, blocks, 192, 208), _half(e, blocks, 208))
    return _scaled(e, q, scale)


_UNPACKERS: Final[Mapping[str, Callable[[Builder, SsaValue], SsaValue]]] = MappingProxyType(
    {"q8_0": _q8_0, "q4_0": _q4_0, "q4_k": _q4_k, "q6_k": _q6_k}
)


def _bits(e: Builder, part: SsaValue) -> SsaValue:
    """Returns bytes as i32 of 0 .. 255."""
    return SsaValue(low_bits(e, part.name, part.spec), TensorSpec(part.spec.shape, i32))


def _half(e: Builder, blocks: SsaValue, place: int) -> SsaValue:
    """Returns the f16 of every block whose first byte has this place: f32 [.., 1]."""
    return SsaValue(half(e, blocks, place), TensorSpec((*blocks.spec.shape[:-1], 1), f32))


@overridable("half")
def half(e: Builder, blocks: SsaValue, place: int) -> str:
    """Writes the f16 at a place of every block [.., bytes] as f32 [.., 1]."""
    pair = cut_last(e, blocks, place, place + 2)
    number = TensorSpec(pair.spec.shape[:-1], f16)
    name = e.convert(e.bitcast(pair.name, pair.spec, number), number, f32)
    return e.reshape(name, TensorSpec(number.shape, f32), (*number.shape, 1))


def _nibble(e: Builder, value: SsaValue, place: int) -> SsaValue:
    """Returns the low (0) or the high (1) four bits of i32 of 0 .. 255."""
    return integer_op(e, "shift_right_logical", value, 4) if place else integer_op(e, "and", value, 15)


def _shaped(e: Builder, value: SsaValue, last: tuple[int, ...], replaced: int = 1) -> SsaValue:
    """Reshapes to ``last`` in the place of the last axis, or of the last ``replaced``."""
    shape = (*value.spec.shape[:-replaced], *last)
    return SsaValue(e.reshape(value.name, value.spec, shape), TensorSpec(shape, value.spec.dtype))


def _scaled(e: Builder, value: SsaValue, scale: SsaValue) -> SsaValue:
    """Multiplies integers, as f32, by scales: [.., n] by [.., 1], or [.., m, n] by [.., m]."""
    cube = TensorSpec(value.spec.shape, f32)
    wide = _spread(e, scale, cube)
    return SsaValue(e.elementwise("multiply", (e.convert(value.name, value.spec, f32), wide), cube), cube)


def _spread(e: Builder, value: SsaValue, target: TensorSpec) -> str:
    """Broadcasts a number for every row of the last axis over that axis."""
    return e.spread(value.name, value.spec, target, tuple(range(value.spec.ndim)))


def integer_op(e: Builder, name: str, x: SsaValue, y: int | SsaValue) -> SsaValue:
    """Applies an op to an i32 and another, or a number."""
    other = y.name if isinstance(y, SsaValue) else e.filled(y, x.spec)
    return SsaValue(e.elementwise(name, (x.name, other), x.spec), x.spec)
