"""Emission of products with block-quantised weights.

``block_quantize`` and ``packed_linear`` are helper functions, so that a target can put kernels in their place. In
StableHLO a weight is unpacked to f32 and multiplied.
"""

from collections.abc import Sequence

from compile_dag import Node
from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._calls import call_helper, flat
from compile_hlo.emit._contract import product
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._helpers import Helper
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._reduce import reduced
from compile_hlo.emit._types import tensor_type
from compile_hlo.emit._unpacking import unpacked
from lang_core import BLOCK, Encoding, TensorSpec, f32, i8, i32
from lang_core.ops import LEAST_MAGNITUDE


@emits("block_quantize")
def _block_quantize(e: Emitter, node: Node) -> None:
    (x,) = node.inputs
    rows, columns = flat(x.shape)
    spec = TensorSpec((rows, columns), x.dtype)
    results = block_specs(spec.shape)
    given = e.reshape(e.name(x), x.spec, spec.shape)
    helper = Helper("block_quantize", f"{x.dtype.name}.{rows}x{columns}")
    made = call_helper(e, helper, [SsaValue(given, spec)], results, quantized)
    bind_blocks(e, node, made, results)


def block_specs(shape: Sequence[int]) -> tuple[TensorSpec, ...]:
    """Returns the specs of a matrix's blocks: integers, scales and sums."""
    rows, columns = shape
    blocks = rows, columns // BLOCK
    return TensorSpec((rows, columns), i8), TensorSpec(blocks, f32), TensorSpec(blocks, i32)


def bind_blocks(e: Emitter, node: Node, call: str, specs: Sequence[TensorSpec]) -> None:
    """Makes a helper function's results those of a node, in their shapes."""
    for number, (value, spec) in enumerate(zip(node.results, specs, strict=True)):
        e.bind(value, e.reshape(f"{call}#{number}", spec, value.shape))


@overridable("block_quantize")
def quantized(e: Builder, matrix: SsaValue) -> list[str]:
    """Writes a matrix in blocks; returns the names of integers, scales and sums."""
    spec = matrix.spec
    rows, columns = spec.shape
    x = e.convert(matrix.name, spec, f32)
    cube, blocks = TensorSpec((rows, columns // BLOCK, BLOCK), f32), TensorSpec((rows, columns // BLOCK), f32)
    x = e.reshape(x, TensorSpec(spec.shape, f32), cube.shape)
    most = reduced(e, "max", e.elementwise("abs", (x,), cube), cube, (2,))
    zero = e.filled(0, blocks)
    small = e.compare("LT", most, e.filled(LEAST_MAGNITUDE, blocks), blocks)
    most = e.select(small, zero, most, blocks)
    scale = e.elementwise("divide", (most, e.filled(127, blocks)), blocks)
    one = e.filled(1, blocks)
    inverse = e.elementwise("divide", (one, e.select(small, one, scale, blocks)), blocks)
    inverse = e.select(small, zero, inverse, blocks)
    scaled = e.elementwise("multiply", (x, e.spread(inverse, blocks, cube, (0, 1))), cube)
    q = e.elementwise("round_nearest_even", (scaled,), cube)
    whole = TensorSpec(cube.shape, i32)
    q = e.new(f"stablehlo.convert {q} : ({tensor_type(cube)}) -> {tensor_type(whole)}")
    total = reduced(e, "sum", q, whole, (2,))
    return [e.convert(e.reshape(q, whole, spec.shape), TensorSpec(spec.shape, i32), i8), scale, total]


@emits("packed_linear")
def _packed_linear(e: Emitter, node: Node) -> None:
    q, scale, total, weight = node.inputs
    encoding, dtype = node.attributes
    rows, columns = flat(q.shape)
    blocks = rows, columns // BLOCK
    given = [
        SsaValue(e.reshape(e.name(value), value.spec, shape), TensorSpec(shape, value.dtype))
        for value, shape in ((q, (rows, columns)), (scale, blocks), (total, blocks))
    ]
    given.append(e.value(weight))
    result = TensorSpec((rows, weight.shape[0]), dtype)
    wide = TensorSpec(result.shape, f32)
    case = f"{encoding.name}.{dtype.name}.{rows}x{weight.shape[0]}x{columns}"

    def body(inner: Emitter, q: SsaValue, scale: SsaValue, _: SsaValue, weight: SsaValue) -> list[str]:
        left, right = packed_factors(inner, q, scale, weight, encoding)
        return [inner.convert(product(inner, left, right, ((1,), (1,), (), ()), wide), wide, dtype)]

    helper = Helper("packed_linear", case, {"encoding": encoding.name})
    made = call_helper(e, helper, given, (result,), body)
    e.alias(node, e.reshape(made, result, node.results[0].shape))


@overridable("packed_factors")
def packed_factors(
    e: Builder, q: SsaValue, scale: SsaValue, weight: SsaValue, encoding: Encoding
) -> tuple[SsaValue, SsaValue]:
    """Writes the operands of a product with a packed weight in f32, the weight unpacked."""
    rows, columns = q.spec.shape
    flat, cube = TensorSpec((rows, columns), f32), TensorSpec((rows, columns // BLOCK, BLOCK), f32)
    x = e.reshape(e.convert(q.name, q.spec, f32), flat, cube.shape)
    x = e.elementwise("multiply", (x, e.spread(scale.name, scale.spec, cube, (0, 1))), cube)
    return SsaValue(e.reshape(x, cube, flat.shape), flat), unpacked(e, weight, encoding)


@emits("dequantize")
def _dequantize(e: Emitter, node: Node) -> None:
    encoding, dtype = node.attributes
    weights = unpacked(e, e.value(node.inputs[0]), encoding)
    e.alias(node, e.convert(weights.name, weights.spec, dtype))
