"""Emission of the unpacking of blocks, generated from their layouts. Each step is rounded as the eager rule's is."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._elementwise import low_bits
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._slices import cut_last, joined
from compile_hlo.emit._types import tensor_type
from lang_core import BitField, BlockLayout, Encoding, Plane, SubScales, TensorSpec, f16, f32, i32

_BYTE: Final = 0xFF
_BYTE_BITS: Final = 8
_MANTISSA: Final = 23  # bits of an f32's fraction
_SIGN: Final = 0x80
_WORD: Final = 4  # bytes that a ``BitField`` moves together


def unpacked(e: Builder, packed: SsaValue, encoding: Encoding) -> SsaValue:
    """Writes the weights, f32 [.., K], of packed blocks i8 [.., bytes]."""
    *leading, width = packed.spec.shape
    count = width // encoding.block_bytes
    blocks = _shaped(e, packed, (count, encoding.block_bytes))
    weights = _weights(e, blocks, encoding.layout)
    result = TensorSpec((*leading, count * encoding.block), f32)
    return SsaValue(e.reshape(weights.name, weights.spec, result.shape), result)


def _weights(e: Builder, blocks: SsaValue, layout: BlockLayout) -> SsaValue:
    """Writes weights f32 [.., size], or [.., parts, size / parts] if parts have scales, of blocks [.., bytes]."""
    if layout.sub_scales is None:
        weights = _scaled(e, _values(e, blocks, layout), _scale(e, blocks, layout))
        if layout.minimum is None:
            return weights
        minimum = _half(e, blocks, layout.minimum)
        return _shifted(e, "add" if layout.adds_minimum else "subtract", weights, minimum)
    if layout.minimum is None:
        values = _values(e, blocks, layout)
        (scale,) = _part_scales(e, blocks, layout, layout.sub_scales)
        return _scaled(e, values, scale)
    scale, minimum = _part_scales(e, blocks, layout, layout.sub_scales)
    return _shifted(e, "subtract", _scaled(e, _values(e, blocks, layout), scale), minimum)


def _values(e: Builder, blocks: SsaValue, layout: BlockLayout) -> SsaValue:
    """Writes the values of the integers [.., size] or [.., parts, size / parts]: f32 of a table, else integers."""
    shape = (layout.size,) if layout.sub_scales is None else (layout.parts, layout.scaled)
    first = layout.planes[0]
    if first.bits == _BYTE_BITS and layout.table is None:
        stored = _shaped(e, cut_last(e, blocks, first.at, first.at + layout.size), shape)
        return _less(e, stored, layout.offset)
    stored = _integers(e, blocks, layout.planes, layout.size, shape)
    return _less(e, stored, layout.offset) if layout.table is None else _looked_up(e, layout.table, stored)


def _integers(e: Builder, blocks: SsaValue, planes: Sequence[Plane], size: int, shape: tuple[int, ...]) -> SsaValue:
    """Writes integers as they are stored, i32 [.., *shape]."""
    first, *others = planes
    value = _plane(e, blocks, first, size, shape)
    for plane in others:
        value = integer_op(e, "or", value, _plane(e, blocks, plane, size, shape))
    return value


def _less(e: Builder, value: SsaValue, offset: int) -> SsaValue:
    """Subtracts an offset, if there is one, from integers."""
    if not offset:
        return value
    whole = TensorSpec(value.spec.shape, i32)
    return integer_op(e, "subtract", SsaValue(e.convert(value.name, value.spec, i32), whole), offset)


def _looked_up(e: Builder, table: Sequence[int], places: SsaValue) -> SsaValue:
    """Writes the numbers of a table at places, f32."""
    numbers = SsaValue(e.constant(np.array(table, np.float32)), TensorSpec((len(table),), f32))
    result = TensorSpec(places.spec.shape, f32)
    name = e.new(
        f'"stablehlo.gather"({numbers.name}, {places.name}) <{{dimension_numbers = #stablehlo.gather<'
        f"collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = {places.spec.ndim}>, "
        f"slice_sizes = array<i64: 1>}}> : ({numbers.kind}, {places.kind}) -> {tensor_type(result)}"
    )
    return SsaValue(name, result)


def _plane(e: Builder, blocks: SsaValue, plane: Plane, size: int, shape: tuple[int, ...]) -> SsaValue:
    """Writes the bits of a plane, i32 [.., *shape], where they stand in the integers."""
    runs, count = size // plane.run, _BYTE_BITS // plane.bits
    stored = _bits(e, cut_last(e, blocks, plane.at, plane.at + runs * plane.span))
    if runs > 1:
        stored = _shaped(e, stored, (runs, 1, plane.span))
    mask = (1 << plane.bits) - 1
    at_once = count > 2  # masks all parts together, not each
    parts = [_field(e, stored, place * plane.bits, _BYTE if at_once else mask) for place in range(count)]
    value = joined(e, parts, stored.spec.ndim - (2 if runs > 1 else 1))
    value = _shaped(e, value, shape, replaced=3 if runs > 1 else 1)
    if at_once:
        value = integer_op(e, "and", value, mask)
    return integer_op(e, "shift_left", value, plane.up) if plane.up else value


def _part_scales(e: Builder, blocks: SsaValue, layout: BlockLayout, scales: SubScales) -> list[SsaValue]:
    """Writes scales of the parts and then, if there are, minima: f32 [.., parts], times the number of all."""
    parts = layout.parts
    count = parts if layout.minimum is None else 2 * parts
    words = _words(e, blocks, scales)
    stored = _integers(e, blocks, scales.planes, count, (count,)) if scales.planes else None
    made: list[SsaValue] = []
    for start in range(0, count, parts):
        if stored is not None:
            small = cut_last(e, stored, start, start + parts)
        elif scales.fields:
            small = _joined_fields(e, words, scales.fields, range(start // _WORD, (start + parts) // _WORD))
        else:
            small = cut_last(e, blocks, scales.at + start, scales.at + start + parts)
            small = small if scales.signed else _bits(e, small)
        if scales.signed and small.spec.dtype is i32:
            small = _with_sign(e, small)
        small = _less(e, small, scales.offset)
        whole = _half(e, blocks, layout.minimum) if start and layout.minimum is not None else _scale(e, blocks, layout)
        made.append(_scaled(e, small, whole))
    return made


def _with_sign(e: Builder, value: SsaValue) -> SsaValue:
    """Writes bytes, i32 of 0 .. 255, as signed integers."""
    return integer_op(e, "subtract", value, integer_op(e, "shift_left", integer_op(e, "and", value, _SIGN), 1))


def _words(e: Builder, blocks: SsaValue, scales: SubScales) -> dict[int, SsaValue]:
    """Writes the words that fields take bits from, i32 [.., 4], by their indices."""
    used = sorted({word for field in scales.fields for word, mask in zip(field.words, field.mask, strict=True) if mask})
    starts = {word: scales.at + _WORD * word for word in used}
    return {word: _bits(e, cut_last(e, blocks, start, start + _WORD)) for word, start in starts.items()}


def _joined_fields(
    e: Builder, words: Mapping[int, SsaValue], fields: Sequence[BitField], results: Sequence[int]
) -> SsaValue:
    """Writes small integers, those of the given words of the result side by side; the last word is written first."""
    made: list[SsaValue] = []
    for result in reversed(results):
        kept = [field for field in fields if field.mask[result]]
        value, *others = (
            _field(e, words[field.words[result]], field.right[result], field.mask[result]) for field in kept
        )
        for other in others:
            value = integer_op(e, "or", other, value)
        made.insert(0, value)
    return joined(e, made, made[0].spec.ndim - 1)


def _bits(e: Builder, part: SsaValue) -> SsaValue:
    """Returns bytes as i32 of 0 .. 255."""
    return SsaValue(low_bits(e, part.name, part.spec), TensorSpec(part.spec.shape, i32))


def _field(e: Builder, value: SsaValue, right: int, mask: int) -> SsaValue:
    """Writes some bits of i32 of 0 .. 255, shifted right; without a mask if the shift removes all other bits."""
    if right:
        value = integer_op(e, "shift_right_logical", value, right)
    return integer_op(e, "and", value, mask) if (_BYTE >> right) & ~mask else value


def _scale(e: Builder, blocks: SsaValue, layout: BlockLayout) -> SsaValue:
    """Returns the number that scales every block: f32 [.., 1]."""
    return _exponent(e, blocks, layout.scale) if layout.exponent else _half(e, blocks, layout.scale)


def _exponent(e: Builder, blocks: SsaValue, place: int) -> SsaValue:
    """Writes 2**(byte - 128), f32 [.., 1]: the bits of a normal number, or of the two that are below those."""
    byte = _bits(e, cut_last(e, blocks, place, place + 1))
    normal = integer_op(e, "shift_left", integer_op(e, "subtract", byte, 1), _MANTISSA)
    small = integer_op(e, "shift_left", SsaValue(e.filled(1 << _MANTISSA - 2, byte.spec), byte.spec), byte)
    is_small = e.compare("LT", byte.name, e.filled(2, byte.spec), byte.spec)
    bits = e.select(is_small, small.name, normal.name, byte.spec)
    number = TensorSpec(byte.spec.shape, f32)
    return SsaValue(e.bitcast(bits, byte.spec, number), number)


def _half(e: Builder, blocks: SsaValue, place: int) -> SsaValue:
    """Returns the f16 that starts at this byte of every block: f32 [.., 1]."""
    return SsaValue(half(e, blocks, place), TensorSpec((*blocks.spec.shape[:-1], 1), f32))


@overridable("half")
def half(e: Builder, blocks: SsaValue, place: int) -> str:
    """Writes the f16 at a place of every block [.., bytes] as f32 [.., 1]."""
    pair = cut_last(e, blocks, place, place + 2)
    number = TensorSpec(pair.spec.shape[:-1], f16)
    name = e.convert(e.bitcast(pair.name, pair.spec, number), number, f32)
    return e.reshape(name, TensorSpec(number.shape, f32), (*number.shape, 1))


def _shaped(e: Builder, value: SsaValue, last: tuple[int, ...], replaced: int = 1) -> SsaValue:
    """Reshapes to ``last`` in the place of the last axis, or of the last ``replaced``."""
    shape = (*value.spec.shape[:-replaced], *last)
    return SsaValue(e.reshape(value.name, value.spec, shape), TensorSpec(shape, value.spec.dtype))


def _scaled(e: Builder, value: SsaValue, scale: SsaValue) -> SsaValue:
    """Multiplies integers, as f32, by scales: [.., n] by [.., 1], or [.., m, n] by [.., m]."""
    cube = TensorSpec(value.spec.shape, f32)
    wide = _spread(e, scale, cube)
    return SsaValue(e.elementwise("multiply", (e.convert(value.name, value.spec, f32), wide), cube), cube)


def _shifted(e: Builder, name: str, value: SsaValue, minimum: SsaValue) -> SsaValue:
    """Adds or subtracts minima, which have the shape of the scales."""
    return SsaValue(e.elementwise(name, (value.name, _spread(e, minimum, value.spec)), value.spec), value.spec)


def _spread(e: Builder, value: SsaValue, target: TensorSpec) -> str:
    """Broadcasts a number for every row of the last axis over that axis."""
    return e.spread(value.name, value.spec, target, tuple(range(value.spec.ndim)))


def integer_op(e: Builder, name: str, x: SsaValue, y: int | SsaValue) -> SsaValue:
    """Applies an op to an i32 and another, or a number."""
    other = y.name if isinstance(y, SsaValue) else e.filled(y, x.spec)
    return SsaValue(e.elementwise(name, (x.name, other), x.spec), x.spec)
