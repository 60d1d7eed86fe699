"""Emission of products with block-quantised weights.

``packed_linear`` comes as ``block_quantize`` and ``block_product`` (compile_hlo/passes). These are helper functions, so
that a target can put kernels in their place. In StableHLO a weight is unpacked to f32 and multiplied.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from compile_dag import Node
from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._calls import call_helper, flat
from compile_hlo.emit._contract import product
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._helpers import Helper
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._reduce import reduced
from compile_hlo.emit._slices import joined
from compile_hlo.emit._types import tensor_type
from compile_hlo.emit._unpacking import unpacked
from compile_hlo.passes import Group
from lang_core import BLOCK, Encoding, TensorSpec, f32, i8, i32
from lang_core.ops import LARGEST_INTEGER, LEAST_MAGNITUDE, PLANE_BASE

PLANE_BITS: Final = 8


@emits("block_quantize")
def _block_quantize(e: Emitter, node: Node) -> None:
    (x,), (bits,) = node.inputs, node.attributes
    rows, columns = flat(x.shape)
    spec = TensorSpec((rows, columns), x.dtype)
    results = block_specs(spec.shape, bits)
    given = e.reshape(e.name(x), x.spec, spec.shape)
    helper = Helper("block_quantize", f"{x.dtype.name}.{rows}x{columns}{bits_in_name(bits)}")
    made = call_helper(e, helper, [SsaValue(given, spec)], results, partial(quantized, bits=bits))
    bind_blocks(e, node, made, results)


def block_specs(shape: Sequence[int], bits: int) -> tuple[TensorSpec, ...]:
    """Returns the specs of a matrix's blocks: planes [rows, bits / 8, columns], scales and sums [rows, blocks]."""
    rows, columns = shape
    blocks = rows, columns // BLOCK
    return TensorSpec((rows, bits // 8, columns), i8), TensorSpec(blocks, f32), TensorSpec(blocks, i32)


def bits_of(group: Group) -> int:
    """Returns the bits of a group that ends in ``block_quantize``."""
    (bits,) = group.members[-1].attributes
    return bits


def bits_in_name(bits: int) -> str:
    """Returns the end of a helper function's name that tells the bits of x; 16 is the rule."""
    return "" if bits == 2 * PLANE_BITS else f".q{bits}"


def bind_blocks(e: Emitter, node: Node, call: str, specs: Sequence[TensorSpec]) -> None:
    """Makes a helper function's results those of a node, in their shapes."""
    for number, (value, spec) in enumerate(zip(node.results, specs, strict=True)):
        e.bind(value, e.reshape(f"{call}#{number}", spec, value.shape))


@overridable("block_quantize")
def quantized(e: Builder, matrix: SsaValue, bits: int) -> list[str]:
    """Writes a matrix in blocks; returns the names of planes, scales and sums."""
    spec = matrix.spec
    rows, columns = spec.shape
    x = e.convert(matrix.name, spec, f32)
    cube, blocks = TensorSpec((rows, columns // BLOCK, BLOCK), f32), TensorSpec((rows, columns // BLOCK), f32)
    x = e.reshape(x, TensorSpec(spec.shape, f32), cube.shape)
    most = reduced(e, "max", e.elementwise("abs", (x,), cube), cube, (2,))
    zero = e.filled(0, blocks)
    small = e.compare("LT", most, e.filled(LEAST_MAGNITUDE, blocks), blocks)
    most = e.select(small, zero, most, blocks)
    scale = e.elementwise("divide", (most, e.filled(LARGEST_INTEGER[bits], blocks)), blocks)
    one = e.filled(1, blocks)
    inverse = e.elementwise("divide", (one, e.select(small, one, scale, blocks)), blocks)
    inverse = e.select(small, zero, inverse, blocks)
    scaled = e.elementwise("multiply", (x, e.spread(inverse, blocks, cube, (0, 1))), cube)
    q = e.elementwise("round_nearest_even", (scaled,), cube)
    total = reduced(e, "sum", _whole(e, q, cube), TensorSpec(cube.shape, i32), (2,))
    return [_planes(e, SsaValue(q, cube), spec.shape, bits), scale, total]


def _planes(e: Builder, q: SsaValue, shape: Sequence[int], bits: int) -> str:
    """Writes the planes i8 [rows, bits / 8, columns] of integers f32 [rows, blocks, 32]."""
    rows, columns = shape
    plane = TensorSpec((rows, 1, columns), i32)
    digits = [q.name]
    if bits > PLANE_BITS:
        base = e.filled(PLANE_BASE, q.spec)
        high = e.elementwise("round_nearest_even", (e.elementwise("divide", (q.name, base), q.spec),), q.spec)
        above = e.elementwise("multiply", (high, base), q.spec)
        digits = [high, e.elementwise("subtract", (q.name, above), q.spec)]
    whole = TensorSpec(q.spec.shape, i32)
    made = [
        SsaValue(
            e.convert(e.reshape(_whole(e, digit, q.spec), whole, plane.shape), plane, i8), TensorSpec(plane.shape, i8)
        )
        for digit in digits
    ]
    return joined(e, made, 1).name


def _whole(e: Builder, q: str, spec: TensorSpec) -> str:
    """Writes whole numbers, f32, as i32."""
    return e.new(f"stablehlo.convert {q} : ({tensor_type(spec)}) -> {tensor_type(TensorSpec(spec.shape, i32))}")


@emits("block_product")
def _block_product(e: Emitter, node: Node) -> None:
    planes, scale, total, weight = node.inputs
    encoding, dtype = node.attributes
    (rows, blocks), (count, columns) = flat(scale.shape), planes.shape[-2:]
    given = [
        SsaValue(e.reshape(e.name(value), value.spec, shape), TensorSpec(shape, value.dtype))
        for value, shape in ((planes, (rows, count, columns)), (scale, (rows, blocks)), (total, (rows, blocks)))
    ]
    given.append(e.value(weight))
    result = TensorSpec((rows, weight.shape[0]), dtype)
    wide = TensorSpec(result.shape, f32)
    case = f"{encoding.name}.{dtype.name}.{rows}x{weight.shape[0]}x{columns}{bits_in_name(PLANE_BITS * count)}"

    def body(inner: Emitter, planes: SsaValue, scale: SsaValue, _: SsaValue, weight: SsaValue) -> list[str]:
        left, right = packed_factors(inner, planes, scale, weight, encoding)
        return [inner.convert(product(inner, left, right, ((1,), (1,), (), ()), wide), wide, dtype)]

    helper = Helper("packed_linear", case, {"encoding": encoding.name})
    made = call_helper(e, helper, given, (result,), body)
    e.alias(node, e.reshape(made, result, node.results[0].shape))


@emits("packed_linear")
def _packed_linear(e: Emitter, node: Node) -> None:
    """Writes the product of x as it is; see ``Overrides.exact_products``."""
    x, weight = node.inputs
    encoding, dtype, _ = node.attributes
    rows, columns = flat(x.shape)
    given = SsaValue(e.reshape(e.name(x), x.spec, (rows, columns)), TensorSpec((rows, columns), x.dtype))
    result = TensorSpec((rows, weight.shape[0]), dtype)
    wide = TensorSpec(result.shape, f32)

    def body(inner: Emitter, x: SsaValue, weight: SsaValue) -> list[str]:
        left = SsaValue(inner.convert(x.name, x.spec, f32), TensorSpec(x.spec.shape, f32))
        right = unpacked(inner, weight, encoding)
        return [inner.convert(product(inner, left, right, ((1,), (1,), (), ()), wide), wide, dtype)]

    case = f"{encoding.name}.{x.dtype.name}.{dtype.name}.{rows}x{weight.shape[0]}x{columns}.exact"
    helper = Helper("packed_linear", case, {"encoding": encoding.name})
    made = call_helper(e, helper, [given, e.value(weight)], (result,), body)
    e.alias(node, e.reshape(made, result, node.results[0].shape))


@overridable("packed_factors")
def packed_factors(
    e: Builder, planes: SsaValue, scale: SsaValue, weight: SsaValue, encoding: Encoding
) -> tuple[SsaValue, SsaValue]:
    """Writes the operands of a product with a packed weight in f32, the weight unpacked."""
    rows, count, columns = planes.spec.shape
    flat, cube = TensorSpec((rows, columns), f32), TensorSpec((rows, columns // BLOCK, BLOCK), f32)
    x, *low = (_plane(e, planes, place) for place in range(count))
    if low:
        x = e.elementwise("add", (e.elementwise("multiply", (x, e.filled(PLANE_BASE, flat)), flat), *low), flat)
    x = e.reshape(x, flat, cube.shape)
    x = e.elementwise("multiply", (x, e.spread(scale.name, scale.spec, cube, (0, 1))), cube)
    return SsaValue(e.reshape(x, cube, flat.shape), flat), unpacked(e, weight, encoding)


def _plane(e: Builder, planes: SsaValue, place: int) -> str:
    """Writes one of the planes i8 [rows, n, columns], as f32 [rows, columns]."""
    rows, count, columns = planes.spec.shape
    starts, stops = (0, place, 0), (rows, place + 1, columns)
    plane = TensorSpec((rows, 1, columns), i8)
    name = planes.name
    if count > 1:
        bounds = ", ".join(f"{start}:{stop}" for start, stop in zip(starts, stops, strict=True))
        name = e.new(f"stablehlo.slice {name} [{bounds}] : ({planes.kind}) -> {tensor_type(plane)}")
    return e.convert(e.reshape(name, plane, (rows, columns)), TensorSpec((rows, columns), i8), f32)


@emits("dequantize")
def _dequantize(e: Emitter, node: Node) -> None:
    encoding, dtype = node.attributes
    weights = unpacked(e, e.value(node.inputs[0]), encoding)
    e.alias(node, e.convert(weights.name, weights.spec, dtype))
