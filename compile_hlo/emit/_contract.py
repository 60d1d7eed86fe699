"""Emission of sums of products."""

from compile_dag import Node, Value
from compile_hlo.emit._elementwise import low_bits
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import integers, tensor_type
from lang_core import DType, TensorSpec, f32, i32, i64, u8


@emits("dot_general")
def _dot_general(e: Emitter, node: Node) -> None:
    x, y = node.inputs
    result = node.results[0].spec
    x_contract, y_contract, x_batch, y_batch, dtype = node.attributes
    # f16 and bf16 products accumulate in f32 and are rounded once.
    wide = TensorSpec(result.shape, f32 if dtype.itemsize == 2 else dtype)
    if not all(x.shape[axis] for axis in x_contract):  # a sum of nothing; the reference interpreter fails on it
        e.alias(node, e.constant(dtype.numpy.type(0), result))
        return
    batching = f"batching_dims = {integers(x_batch)} x {integers(y_batch)}, " if x_batch else ""
    left, right, operand = _operand(e, x, dtype), _operand(e, y, dtype), dtype if x.dtype is u8 else x.dtype
    factors = TensorSpec(x.shape, operand), TensorSpec(y.shape, operand)
    # IREE 3.13 fuses conversions into the product. Of two integer ones, and of a right operand that is computed from
    # what it converts, Vulkan makes wrong numbers.
    if operand in (i32, i64):
        left, right = e.barrier(left, factors[0]), e.barrier(right, factors[1])
    elif e.is_widened(y) or (y.dtype is u8 and dtype is not u8):
        right = e.barrier(right, factors[1])
    kinds = ", ".join(map(tensor_type, factors))
    name = e.new(
        f"stablehlo.dot_general {left}, {right}, {batching}"
        f"contracting_dims = {integers(x_contract)} x {integers(y_contract)} : ({kinds}) -> {tensor_type(wide)}"
    )
    e.alias(node, e.convert(name, wide, dtype))


def _operand(e: Emitter, value: Value, dtype: DType) -> str:
    if value.dtype is not u8 or dtype is u8:
        return e.name(value)
    return e.convert(low_bits(e, e.name(value), value.spec), TensorSpec(value.shape, i32), dtype)
