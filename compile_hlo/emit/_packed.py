"""Emission of products with block-quantised weights.

``block_quantize`` and ``packed_linear`` are helper functions, so that a target can put kernels in their place. In
StableHLO a weight is unpacked to f32 and multiplied; scales are taken apart as integers, for vmvx has no f16.
"""

from collections.abc import Sequence
from typing import Final

from compile_dag import Node
from compile_hlo.emit._aligned import cut, joined
from compile_hlo.emit._calls import call_helper
from compile_hlo.emit._elementwise import low_bits
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._reduce import reduced
from compile_hlo.emit._types import integers, tensor_type
from lang_core import BLOCK, Encoding, TensorSpec, f32, i8, i32
from lang_core.ops import LEAST_MAGNITUDE

# The parts of an f16: 5 bits of exponent with a bias of 15, 10 of mantissa; of an f32: 23 of mantissa, a bias of 127.
_MANTISSA_SHIFT: Final = 13
_BIAS_STEP: Final = (127 - 15) << 23
_SMALLEST: Final = 2.0**-24  # of an f16, and the unit of those without an exponent


@emits("block_quantize")
def _block_quantize(e: Emitter, node: Node) -> None:
    (x,) = node.inputs
    rows, columns = _flat(x.shape)
    spec = TensorSpec((rows, columns), x.dtype)
    blocks = TensorSpec((rows, columns // BLOCK), f32)
    results = (TensorSpec(spec.shape, i8), blocks, TensorSpec(blocks.shape, i32))
    given = e.reshape(e.name(x), x.spec, spec.shape)
    case = f"{x.dtype.name}.{rows}x{columns}"
    found = call_helper(
        e, "block_quantize", case, [(given, spec)], results, lambda inner: _quantized(inner, "%a0", spec)
    )
    for number, (value, result) in enumerate(zip(node.results, results, strict=True)):
        e.bind(value, e.reshape(f"{found}#{number}", result, value.shape))


def _quantized(e: Emitter, x: str, spec: TensorSpec) -> list[str]:
    """Integers, scales, sums."""
    rows, columns = spec.shape
    x = e.convert(x, spec, f32)
    cube, blocks = TensorSpec((rows, columns // BLOCK, BLOCK), f32), TensorSpec((rows, columns // BLOCK), f32)
    kind, flat = tensor_type(cube), tensor_type(blocks)
    x = e.reshape(x, TensorSpec(spec.shape, f32), cube.shape)
    size = e.new(f"stablehlo.abs {x} : {kind}")
    most = reduced(e, "max", size, cube, (2,))
    zero = e.constant(f32.numpy.type(0), blocks)
    small = e.compare("LT", most, e.constant(f32.numpy.type(LEAST_MAGNITUDE), blocks), blocks)
    most = e.select(small, zero, most, blocks)
    scale = e.new(f"stablehlo.divide {most}, {e.constant(f32.numpy.type(127), blocks)} : {flat}")
    one = e.constant(f32.numpy.type(1), blocks)
    inverse = e.new(f"stablehlo.divide {one}, {e.select(small, one, scale, blocks)} : {flat}")
    inverse = e.select(small, zero, inverse, blocks)
    wide = e.new(f"stablehlo.broadcast_in_dim {inverse}, dims = [0, 1] : ({flat}) -> {kind}")
    scaled = e.new(f"stablehlo.multiply {x}, {wide} : {kind}")
    q = e.new(f"stablehlo.round_nearest_even {scaled} : {kind}")
    whole = TensorSpec(cube.shape, i32)
    q = e.new(f"stablehlo.convert {q} : ({kind}) -> {tensor_type(whole)}")
    total = reduced(e, "sum", q, whole, (2,))
    flat_q = TensorSpec(spec.shape, i32)
    q = e.convert(e.reshape(q, whole, spec.shape), flat_q, i8)
    # Without it IREE 3.13 cannot legalise the way from f32 by i32 and i8 to the f32 of a product.
    q = e.barrier(q, TensorSpec(spec.shape, i8))
    return [q, scale, total]


@emits("packed_linear")
def _packed_linear(e: Emitter, node: Node) -> None:
    q, scale, total, weight = node.inputs
    encoding, dtype = node.attributes
    rows, columns = _flat(q.shape)
    blocks = rows, columns // BLOCK
    given = [
        (e.reshape(e.name(value), value.spec, shape), TensorSpec(shape, value.dtype))
        for value, shape in ((q, (rows, columns)), (scale, blocks), (total, blocks))
    ]
    given.append((e.name(weight), weight.spec))
    result = TensorSpec((rows, weight.shape[0]), dtype)
    case = f"{encoding.name}.{dtype.name}.{rows}x{weight.shape[0]}x{columns}"
    wide, specs = TensorSpec(result.shape, f32), [spec for _, spec in given]
    found = call_helper(
        e,
        "packed_linear",
        case,
        given,
        (result,),
        lambda inner: [inner.convert(_product(inner, specs, encoding), wide, dtype)],
    )
    e.alias(node, e.reshape(found, result, node.results[0].shape))


def _product(e: Emitter, specs: Sequence[TensorSpec], encoding: Encoding) -> str:
    q, blocks, _, weight = specs
    rows, columns = q.shape
    cube = TensorSpec((rows, columns // BLOCK, BLOCK), f32)
    x = e.reshape(e.convert("%a0", q, f32), TensorSpec(q.shape, f32), cube.shape)
    kind = tensor_type(cube)
    wide = e.new(f"stablehlo.broadcast_in_dim %a1, dims = [0, 1] : ({tensor_type(blocks)}) -> {kind}")
    x = e.new(f"stablehlo.multiply {x}, {wide} : {kind}")
    x = e.reshape(x, cube, (rows, columns))
    unpacked, spec = _unpacked(e, "%a3", weight, encoding)
    # IREE 3.13 fuses conversions into the product; of computed operands Vulkan then makes wrong numbers.
    left, right = TensorSpec((rows, columns), f32), spec
    x, unpacked = e.barrier(x, left), e.barrier(unpacked, right)
    result = TensorSpec((rows, weight.shape[0]), f32)
    return e.new(
        f"stablehlo.dot_general {x}, {unpacked}, contracting_dims = [1] x [1] : "
        f"({tensor_type(left)}, {tensor_type(right)}) -> {tensor_type(result)}"
    )


@emits("dequantize")
def _dequantize(e: Emitter, node: Node) -> None:
    (packed,) = node.inputs
    encoding, dtype = node.attributes
    found, spec = _unpacked(e, e.name(packed), packed.spec, encoding)
    e.alias(node, e.convert(found, spec, dtype))


def _unpacked(e: Emitter, name: str, spec: TensorSpec, encoding: Encoding) -> tuple[str, TensorSpec]:
    """Name and spec of the weights, f32 [.., K], of packed blocks."""
    *leading, width = spec.shape
    count = width // encoding.block_bytes
    blocks = TensorSpec((*leading, count, encoding.block_bytes), i8)
    name = e.reshape(name, spec, blocks.shape)
    whole = [(0, dim) for dim in blocks.shape[:-1]]
    low, part = cut(e, name, blocks, [*whole, (0, 1)])
    high, _ = cut(e, name, blocks, [*whole, (1, 2)])
    scale = _float_of_half(e, low_bits(e, low, part), low_bits(e, high, part), TensorSpec(part.shape, i32))
    stored, inner = cut(e, name, blocks, [*whole, (2, encoding.block_bytes)])
    if encoding.bits == 4:
        bits, wide = low_bits(e, stored, inner), TensorSpec(inner.shape, i32)
        kind = tensor_type(wide)
        first = e.new(f"stablehlo.and {bits}, {e.constant(i32.numpy.type(15), wide)} : {kind}")
        second = e.new(f"stablehlo.shift_right_logical {bits}, {e.constant(i32.numpy.type(4), wide)} : {kind}")
        integer, inner = joined(e, [(first, wide), (second, wide)], wide.ndim - 1)
        zero = e.constant(i32.numpy.type(encoding.zero), inner)
        integer = e.new(f"stablehlo.subtract {integer}, {zero} : {tensor_type(inner)}")
    else:
        integer = stored
    cube = TensorSpec(inner.shape, f32)
    dims = integers(tuple(range(cube.ndim)))
    source = tensor_type(TensorSpec(part.shape, f32))
    wide_scale = e.new(f"stablehlo.broadcast_in_dim {scale}, dims = {dims} : ({source}) -> {tensor_type(cube)}")
    product = e.new(f"stablehlo.multiply {e.convert(integer, inner, f32)}, {wide_scale} : {tensor_type(cube)}")
    result = TensorSpec((*leading, count * BLOCK), f32)
    return e.reshape(product, cube, result.shape), result


def _float_of_half(e: Emitter, low: str, high: str, spec: TensorSpec) -> str:
    """The f32 of an f16 whose two bytes are given as i32: exact, of numbers that the f16 has no exponent for, too."""
    kind = tensor_type(spec)

    def op(name: str, x: str, number: int | str) -> str:
        y = number if isinstance(number, str) else e.constant(i32.numpy.type(number), spec)
        return e.new(f"stablehlo.{name} {x}, {y} : {kind}")

    floats = TensorSpec(spec.shape, f32)
    wide = tensor_type(floats)
    bits = op("or", op("shift_left", high, 8), low)
    size = op("and", bits, 0x7FFF)
    sign = op("shift_left", op("and", bits, 0x8000), 16)
    normal = op("add", op("shift_left", size, _MANTISSA_SHIFT), _BIAS_STEP)
    above = op("add", normal, _BIAS_STEP)  # infinity and NaN have all bits of the exponent in both
    beyond = e.compare("LE", e.constant(i32.numpy.type(0x7C00), spec), size, spec)
    normal = op("or", e.select(beyond, above, normal, spec), sign)
    normal = e.new(f"stablehlo.bitcast_convert {normal} : ({kind}) -> {wide}")
    unit = e.constant(f32.numpy.type(_SMALLEST), floats)
    tiny = e.new(f"stablehlo.multiply {e.convert(size, spec, f32)}, {unit} : {wide}")
    negative = e.compare("NE", sign, e.constant(i32.numpy.type(0), spec), spec)
    tiny = e.select(negative, e.new(f"stablehlo.negate {tiny} : {wide}"), tiny, floats)
    without = e.compare("LT", size, e.constant(i32.numpy.type(0x0400), spec), spec)
    return e.select(without, tiny, normal, floats)


def _flat(shape: Sequence[int]) -> tuple[int, int]:
    """A shape as a matrix: all but the last dim together."""
    rows = 1
    for dim in shape[:-1]:
        rows *= dim
    return rows, shape[-1]
