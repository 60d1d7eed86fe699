"""Faults in conversions, comparisons and arithmetic."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from compile_hlo.emit import Builder, SsaValue, tensor_type
from compile_hlo.emit._elementwise import low_bits
from compile_hlo.emit._order import Comparator
from compile_hlo.emit._slices import cut_last, joined
from compile_hlo.emit._unpacking import integer_op
from compile_hlo.quirks._fault import fault
from lang_core import DType, TensorSpec, bf16, f32, f64, i8, i32, u8

Plain = Callable[..., str]

# Parts of an f16: 5 bits of exponent with a bias of 15, 10 of mantissa; of an f32: 23 of mantissa, a bias of 127.
_MANTISSA_SHIFT: Final = 13
_BIAS_STEP: Final = (127 - 15) << 23
_SMALLEST: Final = 2.0**-24  # of an f16, and the unit of those without an exponent


@fault("convert", targets="vmvx", cases="cast_f64_bf16")
def conversion_of_16_bits(plain: Plain, e: Builder, name: str, spec: TensorSpec, dtype: DType) -> str:
    """vmvx converts 16-bit floats from and to f32 only."""
    if spec.dtype.itemsize != 2 or f32 in (spec.dtype, dtype) or spec.dtype is dtype:
        return plain(e, name, spec, dtype)
    return e.convert(e.convert(name, spec, f32), TensorSpec(spec.shape, f32), dtype)


@fault("convert", targets="vmvx", cases="cast_u8_f32")
def conversion_to_unsigned(plain: Plain, e: Builder, name: str, spec: TensorSpec, dtype: DType) -> str:
    """vmvx converts floats to signed integers only."""
    if dtype is not u8 or spec.dtype.itemsize <= 2 or not spec.dtype.is_floating:
        return plain(e, name, spec, dtype)
    return e.convert(e.convert(name, spec, i32), TensorSpec(spec.shape, i32), dtype)


@fault("convert", targets="vmvx vulkan-spirv", cases="cast_bf16_i32")
def integers_to_bf16(plain: Plain, e: Builder, name: str, spec: TensorSpec, dtype: DType) -> str:
    """A conversion of integers to f32 and then to bf16 is fused into one that cannot be compiled."""
    if dtype is not bf16 or spec.dtype.is_floating:
        return plain(e, name, spec, dtype)
    wide = TensorSpec(spec.shape, f32)
    return e.convert(e.barrier(e.convert(name, spec, f32), wide), wide, dtype)


@fault("convert", targets="vmvx", cases="cast_i32_f32")
def truncation(plain: Plain, e: Builder, name: str, spec: TensorSpec, dtype: DType) -> str:
    """vmvx rounds to nearest, if a conversion to integers is to round towards zero."""
    if spec.dtype.is_floating and dtype.is_integer:
        negative = e.compare("LT", name, e.filled(0, spec), spec)
        up, down = e.elementwise("ceil", (name,), spec), e.elementwise("floor", (name,), spec)
        name = e.select(negative, up, down, spec)
    return plain(e, name, spec, dtype)


@fault("compare", targets="vmvx", cases="equal_itself_f32 argmin_nan_f32")
def equal_to_itself(plain: Plain, e: Builder, direction: str, x: str, y: str, spec: TensorSpec) -> str:
    """vmvx takes every number for equal to itself, NaN too."""
    if x != y or direction not in ("EQ", "NE") or not spec.dtype.is_floating:
        return plain(e, direction, x, y, spec)
    is_number = e.compare("LE", x, e.filled(math.inf, spec), spec)
    return is_number if direction == "EQ" else e.elementwise("not", (is_number,), TensorSpec(spec.shape, "bool"))


@equal_to_itself.at("sort")
def _infinity_before_region(
    plain: Plain, e: Builder, x: SsaValue, order: SsaValue, axis: int, before: Comparator
) -> str:
    """Writes the constant that comparisons need where the region of the sort can see it."""
    if x.spec.dtype.is_floating:
        e.scalar(math.inf, x.spec.dtype)
    return plain(e, x, order, axis, before)


@fault("compare", targets="vmvx", cases="greater_equal_f32")
def greater_or_equal(plain: Plain, e: Builder, direction: str, x: str, y: str, spec: TensorSpec) -> str:
    """vmvx takes ``NaN >= y`` for true, and ``y <= NaN`` not."""
    if direction == "GE" and spec.dtype.is_floating:
        return plain(e, "LE", y, x, spec)
    return plain(e, direction, x, y, spec)


@fault("select", targets="vmvx", cases="select_constant_bf16")
def constants_of_16_bits(plain: Plain, e: Builder, condition: str, x: str, y: str, spec: TensorSpec) -> str:
    """vmvx lacks constants of 16-bit floats, and an operand may become one: they are chosen as bits."""
    if spec.dtype.itemsize != 2:
        return plain(e, condition, x, y, spec)
    kind, flags = tensor_type(spec), tensor_type(TensorSpec(spec.shape, "bool"))
    bits = kind.replace(f"{spec.dtype.name}>", "i16>")
    x, y = (e.new(f"stablehlo.bitcast_convert {name} : ({kind}) -> {bits}") for name in (x, y))
    chosen = e.new(f"stablehlo.select {condition}, {x}, {y} : {flags}, {bits}")
    return e.new(f"stablehlo.bitcast_convert {chosen} : ({bits}) -> {kind}")


@fault("iota", targets="vmvx vulkan-spirv", cases="iota_bf16")
def positions_in_16_bits(plain: Plain, e: Builder, spec: TensorSpec, axis: int) -> str:
    """vmvx and Vulkan cannot count in 16-bit floats."""
    if spec.dtype.itemsize != 2:
        return plain(e, spec, axis)
    wide = TensorSpec(spec.shape, i32)
    return e.convert(plain(e, wide, axis), wide, spec.dtype)


@fault("half", targets="vmvx", cases="dequantize_q8_0_f32")
def numbers_of_16_bits(plain: Plain, e: Builder, blocks: SsaValue, place: int) -> str:
    """vmvx lacks f16: the scales of packed blocks are decoded as integers.

    The f32 is exact, also for numbers outside the exponent range of f16.
    """
    del plain
    spec = TensorSpec((*blocks.spec.shape[:-1], 1), i32)

    def byte(at: int) -> SsaValue:
        part = cut_last(e, blocks, at, at + 1)
        return SsaValue(low_bits(e, part.name, part.spec), spec)

    low, high = byte(place), byte(place + 1)
    floats = TensorSpec(spec.shape, f32)
    bits = integer_op(e, "or", integer_op(e, "shift_left", high, 8), low)
    size = integer_op(e, "and", bits, 0x7FFF)
    sign = integer_op(e, "shift_left", integer_op(e, "and", bits, 0x8000), 16)
    normal = integer_op(e, "add", integer_op(e, "shift_left", size, _MANTISSA_SHIFT), _BIAS_STEP)
    above = integer_op(e, "add", normal, _BIAS_STEP)  # infinity and NaN have all bits of the exponent in both
    beyond = e.compare("LE", e.filled(0x7C00, spec), size.name, spec)
    normal = integer_op(e, "or", SsaValue(e.select(beyond, above.name, normal.name, spec), spec), sign)
    number = e.bitcast(normal.name, spec, floats)
    unit = e.filled(_SMALLEST, floats)
    tiny = e.elementwise("multiply", (e.convert(size.name, spec, f32), unit), floats)
    negative = e.compare("NE", sign.name, e.filled(0, spec), spec)
    tiny = e.select(negative, e.elementwise("negate", (tiny,), floats), tiny, floats)
    without = e.compare("LT", size.name, e.filled(0x0400, spec), spec)
    return e.select(without, tiny, number, floats)


@fault("half_bytes", targets="vmvx", cases="quantize_q8_0_f32")
def bytes_of_16_bits(plain: Plain, e: Builder, scale: SsaValue) -> SsaValue:
    """vmvx lacks f16: the scales of packed blocks, none of them infinite, are encoded as integers."""
    del plain
    floats, whole = scale.spec, TensorSpec(scale.spec.shape, i32)
    bits = SsaValue(e.bitcast(scale.name, floats, whole), whole)
    size = integer_op(e, "and", bits, 0x7FFFFFFF)
    sign = integer_op(e, "and", integer_op(e, "shift_right_logical", bits, 16), 0x8000)
    odd = integer_op(e, "and", integer_op(e, "shift_right_logical", size, _MANTISSA_SHIFT), 1)
    rounded = integer_op(e, "add", integer_op(e, "add", size, 0xFFF), odd)  # to nearest even
    normal = integer_op(e, "shift_right_logical", integer_op(e, "subtract", rounded, _BIAS_STEP), _MANTISSA_SHIFT)
    steps = e.elementwise("divide", (e.elementwise("abs", (scale.name,), floats), e.filled(_SMALLEST, floats)), floats)
    steps = e.elementwise("round_nearest_even", (steps,), floats)
    tiny = SsaValue(e.new(f"stablehlo.convert {steps} : ({scale.kind}) -> {tensor_type(whole)}"), whole)
    without = e.compare("LT", size.name, e.filled(0x38800000, whole), whole)  # an exponent of f16
    number = SsaValue(e.select(without, tiny.name, normal.name, whole), whole)
    beyond = e.compare("LT", e.filled(0x7F800000, whole), size.name, whole)
    number = SsaValue(e.select(beyond, e.filled(0x7E00, whole), number.name, whole), whole)
    number = integer_op(e, "or", number, sign)
    parts: list[SsaValue] = []
    for shift in (0, 8):
        byte = integer_op(e, "and", integer_op(e, "shift_right_logical", number, shift), 0xFF)
        signed = integer_op(e, "subtract", integer_op(e, "xor", byte, 0x80), 0x80)
        byte_spec, one = TensorSpec(whole.shape, i8), TensorSpec((*whole.shape, 1), i8)
        parts.append(SsaValue(e.reshape(e.convert(signed.name, whole, i8), byte_spec, one.shape), one))
    return joined(e, parts, len(whole.shape))


@fault("shift_right_logical", targets="vmvx", cases="shift_right_logical_i8")
def shift_of_8_bits(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """vmvx widens 8 bits with their sign before it shifts them."""
    return plain(e, op, operands, spec) if spec.dtype.itemsize > 1 else _as_unsigned(plain, e, op, operands, spec)


def _as_unsigned(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """Applies an op to 8-bit operands as i32 of 0 .. 255."""
    wide = TensorSpec(spec.shape, i32)
    return e.convert(plain(e, op, [low_bits(e, name, spec) for name in operands], wide), wide, spec.dtype)


@fault("remainder", targets="vulkan-spirv", cases="rem_i32")
def remainder_of_negative(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """Vulkan loses the sign of a negative integer: the remainder is computed of unsigned numbers."""
    if not spec.dtype.is_integer or spec.dtype is u8:
        return plain(e, op, operands, spec)
    kind = tensor_type(spec)
    unsigned = kind.replace("xi", "xui").replace("<i", "<ui")
    sizes = [e.elementwise("abs", (name,), spec) for name in operands]
    sizes = [e.new(f"stablehlo.bitcast_convert {name} : ({kind}) -> {unsigned}") for name in sizes]
    rest = e.new(f"stablehlo.remainder {', '.join(sizes)} : {unsigned}")
    rest = e.new(f"stablehlo.bitcast_convert {rest} : ({unsigned}) -> {kind}")
    negative = e.compare("LT", operands[0], e.filled(0, spec), spec)
    return e.select(negative, e.elementwise("negate", (rest,), spec), rest, spec)


@fault("remainder", targets="vmvx vulkan-spirv", cases="rem_f32")
def remainder_of_floats(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """The remainder has not x's sign, or is not x if x is the smaller: on vmvx, and on Vulkan for infinite y."""
    if not spec.dtype.is_floating:
        return plain(e, op, operands, spec)
    x, _ = operands
    flags, zero = TensorSpec(spec.shape, "bool"), e.filled(0, spec)
    rest = plain(e, op, operands, spec)
    size_x, size_y = (e.elementwise("abs", (name,), spec) for name in operands)
    below, above = e.compare("LT", x, zero, spec), e.compare("GT", x, zero, spec)
    rest_below, rest_above = e.compare("LT", rest, zero, spec), e.compare("GT", rest, zero, spec)
    lower = e.elementwise("and", (below, rest_above), flags)
    higher = e.elementwise("and", (above, rest_below), flags)
    rest = e.select(lower, e.elementwise("subtract", (rest, size_y), spec), rest, spec)
    rest = e.select(higher, e.elementwise("add", (rest, size_y), spec), rest, spec)
    return e.select(e.compare("LT", size_x, size_y, spec), x, rest, spec)


@fault("divide", "remainder", targets="vmvx", cases="quotient_u8 rem_u8")
def unsigned_division(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """vmvx takes the sign of u8 along into a division unless the bits are masked."""
    return plain(e, op, operands, spec) if spec.dtype is not u8 else _as_unsigned(plain, e, op, operands, spec)


@fault("tanh", targets="llvm-cpu", cases="tanh_f64")
def tanh_of_f64(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """llvm-cpu lacks tanh of f64: it is expm1(2x) / (expm1(2x) + 2), and tanh(20) is 1 in f64."""
    if spec.dtype is not f64:
        return plain(e, op, operands, spec)
    low, high, two = (e.filled(number, spec) for number in (-20, 20, 2))
    inside = e.new(f"stablehlo.clamp {low}, {operands[0]}, {high} : {tensor_type(spec)}")
    doubled = e.elementwise("add", (inside, inside), spec)
    above = e.elementwise("exponential_minus_one", (doubled,), spec)
    return e.elementwise("divide", (above, e.elementwise("add", (above, two), spec)), spec)


@fault("sign", targets="vmvx", cases="sign_f32")
def sign_by_comparisons(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """vmvx lacks copysign, with which a sign is computed."""
    del plain, op
    (x,) = operands
    zero, one, minus_one = (e.filled(number, spec) for number in (0, 1, -1))
    below = e.select(e.compare("LT", x, zero, spec), minus_one, x, spec)
    return e.select(e.compare("GT", x, zero, spec), one, below, spec)
