"""Emission of elementwise ops."""

from typing import Final

from compile_dag import Node, Value
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import tensor_type
from lang_core import DType, TensorSpec, f32, promote

_SAME_TYPE: Final = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "maximum": "maximum",
    "minimum": "minimum",
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "xor",
    "logical_not": "not",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "shift_left": "shift_left",
    "shift_right_logical": "shift_right_logical",
    "negate": "negate",
    "floor": "floor",
    "ceil": "ceil",
    "round": "round_nearest_even",
}
# f16 and bf16 are computed in f32 and rounded once, as the eager rules do.
_IN_FLOAT32: Final = {
    "rem": "remainder",
    "pow": "power",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "log": "log",
    "log1p": "log_plus_one",
    "tanh": "tanh",
    "logistic": "logistic",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sine",
    "cos": "cosine",
}
_COMPARE: Final = {
    "equal": "EQ",
    "not_equal": "NE",
    "less": "LT",
    "less_equal": "LE",
    "greater": "GT",
    "greater_equal": "GE",
}


def common_dtype(values: tuple[Value, ...]) -> DType:
    """The dtype to which operands promote; the op's contract has checked that there is one."""
    dtype = values[0].dtype
    for value in values[1:]:
        dtype = promote(dtype, value.dtype) or dtype
    return dtype


@emits(*_SAME_TYPE)
def _same_type(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    operands = ", ".join([e.operand(value, spec.shape, spec.dtype) for value in node.inputs])
    e.define(node, f"stablehlo.{_SAME_TYPE[node.op.name]} {operands} : {tensor_type(spec)}")


@emits(*_IN_FLOAT32)
def _in_float32(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    wide = TensorSpec(spec.shape, f32) if spec.dtype.itemsize == 2 else spec
    operands = ", ".join([e.operand(value, spec.shape, wide.dtype) for value in node.inputs])
    result = e.new(f"stablehlo.{_IN_FLOAT32[node.op.name]} {operands} : {tensor_type(wide)}")
    e.alias(node, e.convert(result, wide, spec.dtype))


@emits("abs", "sign")
def _of_signed(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    x = e.name(node.inputs[0])
    if spec.dtype.name != "u8":
        e.define(node, f"stablehlo.{node.op.name} {x} : {tensor_type(spec)}")
    elif node.op.name == "abs":
        e.alias(node, x)
    else:
        one = e.constant(spec.dtype.numpy.type(1), spec)
        e.define(node, f"stablehlo.minimum {x}, {one} : {tensor_type(spec)}")


@emits(*_COMPARE)
def _compare(e: Emitter, node: Node) -> None:
    spec = TensorSpec(node.results[0].shape, common_dtype(node.inputs))
    x, y = (e.operand(value, spec.shape, spec.dtype) for value in node.inputs)
    e.alias(node, e.compare(_COMPARE[node.op.name], x, y, spec))


@emits("select")
def _select(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    pred_spec = TensorSpec(spec.shape, "bool")
    pred, on_true, on_false = node.inputs
    names = (
        e.operand(pred, spec.shape, pred_spec.dtype),
        e.operand(on_true, spec.shape, spec.dtype),
        e.operand(on_false, spec.shape, spec.dtype),
    )
    e.define(node, f"stablehlo.select {', '.join(names)} : {tensor_type(pred_spec)}, {tensor_type(spec)}")


@emits("clamp")
def _clamp(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    x, low, high = (e.operand(value, spec.shape, spec.dtype) for value in node.inputs)
    e.define(node, f"stablehlo.clamp {low}, {x}, {high} : {tensor_type(spec)}")


@emits("cast")
def _cast(e: Emitter, node: Node) -> None:
    x = node.inputs[0]
    e.alias(node, e.convert(e.name(x), x.spec, node.attributes[0]))
