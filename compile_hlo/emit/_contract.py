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
    if operand in (i32, i64):
        # IREE 3.13 fuses conversions from 8 bits into it, and what comes of two is wrong on Vulkan.
        left, right = (
            e.new(f"stablehlo.optimization_barrier {name} : {tensor_type(TensorSpec(value.shape, operand))}")
            for name, value in ((left, x), (right, y))
        )
    kinds = ", ".join([tensor_type(TensorSpec(value.shape, operand)) for value in (x, y)])
    name = e.new(
        f"stablehlo.dot_general {left}, {right}, {batching}"
        f"contracting_dims = {integers(x_contract)} x {integers(y_contract)} : ({kinds}) -> {tensor_type(wide)}"
    )
    e.alias(node, e.convert(name, wide, dtype))


def _operand(e: Emitter, value: Value, dtype: DType) -> str:
    if value.dtype is not u8 or dtype is u8:
        return e.name(value)
    return e.convert(low_bits(e, e.name(value), value.spec), TensorSpec(value.shape, i32), dtype)
