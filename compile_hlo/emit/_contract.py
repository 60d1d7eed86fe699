"""Emission of sums of products."""

import math

from compile_dag import Node, Value
from compile_hlo.emit._calls import call_helper
from compile_hlo.emit._elementwise import low_bits
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import integers, tensor_type
from lang_core import DType, TensorSpec, bf16, f16, f32, i32, i64, u8


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
    if _is_linear(x, y, node):
        e.alias(node, _linear(e, x, y, result))
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


def _is_linear(x: Value, y: Value, node: Node) -> bool:
    """Whether this is ``x [.., K] @ y [N, K].T`` in 16 bits, for which a target may have a kernel."""
    *axes, dtype = node.attributes
    plain = tuple(axes) == ((x.spec.ndim - 1,), (1,), (), ()) and y.spec.ndim == 2
    return plain and x.dtype is y.dtype and x.dtype in (bf16, f16) and dtype in (x.dtype, f32)


def _linear(e: Emitter, x: Value, y: Value, result: TensorSpec) -> str:
    """A helper function's call, for x as a matrix."""
    rows, (outputs, columns) = math.prod(x.shape[:-1]), y.shape
    flat, made = TensorSpec((rows, columns), x.dtype), TensorSpec((rows, outputs), result.dtype)
    given = [(e.reshape(e.name(x), x.spec, flat.shape), flat), (e.name(y), y.spec)]
    case = f"{x.dtype.name}.{result.dtype.name}.{rows}x{outputs}x{columns}"
    wide = TensorSpec(made.shape, f32)

    def body(inner: Emitter) -> list[str]:
        product = inner.new(
            f"stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [1] : "
            f"({tensor_type(flat)}, {tensor_type(y.spec)}) -> {tensor_type(wide)}"
        )
        return [inner.convert(product, wide, made.dtype)]

    found = call_helper(e, "linear", case, given, (made,), body)
    return e.reshape(found, made, result.shape)


def _operand(e: Emitter, value: Value, dtype: DType) -> str:
    if value.dtype is not u8 or dtype is u8:
        return e.name(value)
    return e.convert(low_bits(e, e.name(value), value.spec), TensorSpec(value.shape, i32), dtype)
