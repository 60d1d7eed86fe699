"""Emission of products with block-quantised weights.

``block_quantize`` and ``packed_linear`` are helper functions, so that a target can put kernels in their place. In
StableHLO a weight is unpacked to f32 and multiplied.
"""

from collections.abc import Sequence

from compile_dag import Node
from compile_hlo.emit._calls import call_helper, flat
from compile_hlo.emit._emitter import Emitter, emits
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
    case = f"{x.dtype.name}.{rows}x{columns}"
    found = call_helper(
        e, "block_quantize", case, [(given, spec)], results, lambda inner: quantized(inner, "%a0", spec)
    )
    bind_blocks(e, node, found, results)


def block_specs(shape: Sequence[int]) -> tuple[TensorSpec, ...]:
    """Integers, scales and sums of a matrix."""
    rows, columns = shape
    blocks = rows, columns // BLOCK
    return TensorSpec((rows, columns), i8), TensorSpec(blocks, f32), TensorSpec(blocks, i32)


def bind_blocks(e: Emitter, node: Node, found: str, specs: Sequence[TensorSpec]) -> None:
    """Makes what a helper function gives the results of a node, in their shapes."""
    for number, (value, spec) in enumerate(zip(node.results, specs, strict=True)):
        e.bind(value, e.reshape(f"{found}#{number}", spec, value.shape))


def quantized(e: Emitter, x: str, spec: TensorSpec) -> list[str]:
    """Integers, scales, sums of a matrix."""
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
    rows, columns = flat(q.shape)
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
    matrix, spec = unpacked(e, "%a3", weight, encoding)
    # IREE 3.13 fuses conversions into the product; of computed operands Vulkan then makes wrong numbers.
    left, right = TensorSpec((rows, columns), f32), spec
    x, matrix = e.barrier(x, left), e.barrier(matrix, right)
    result = TensorSpec((rows, weight.shape[0]), f32)
    return e.new(
        f"stablehlo.dot_general {x}, {matrix}, contracting_dims = [1] x [1] : "
        f"({tensor_type(left)}, {tensor_type(right)}) -> {tensor_type(result)}"
    )


@emits("dequantize")
def _dequantize(e: Emitter, node: Node) -> None:
    (packed,) = node.inputs
    encoding, dtype = node.attributes
    found, spec = unpacked(e, e.name(packed), packed.spec, encoding)
    e.alias(node, e.convert(found, spec, dtype))
