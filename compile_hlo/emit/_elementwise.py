"""Emission of elementwise ops."""

from typing import Final

from compile_dag import Node, Value
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import tensor_type
from lang_core import DType, TensorSpec, f32, f64, promote

_NAMES: Final = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "rem": "remainder",
    "pow": "power",
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
    "abs": "abs",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "log": "log",
    "log1p": "log_plus_one",
    "logistic": "logistic",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sine",
    "cos": "cosine",
    "floor": "floor",
    "ceil": "ceil",
    "round": "round_nearest_even",
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


def wide_dtype(dtype: DType) -> DType:
    """The dtype to compute in: f32 for f16 and bf16.

    One rounding of an f32 result to 16 bits gives what 16-bit arithmetic gives, sum, product, quotient and root
    alike (Figueroa 1995, "When is double rounding innocuous?"), and IREE's vmvx has no 16-bit arithmetic.
    """
    return f32 if dtype.itemsize == 2 else dtype


@emits(*_NAMES)
def _plain(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    if spec.dtype.itemsize != 2:
        operands = ", ".join([e.operand(value, spec.shape, spec.dtype) for value in node.inputs])
        e.define(node, f"stablehlo.{_NAMES[node.op.name]} {operands} : {tensor_type(spec)}")
        return
    wide = TensorSpec(spec.shape, f32)
    operands = ", ".join([e.operand(value, spec.shape, f32) for value in node.inputs])
    result = e.new(f"stablehlo.{_NAMES[node.op.name]} {operands} : {tensor_type(wide)}")
    e.alias(node, e.convert(result, wide, spec.dtype))


@emits("tanh")
def _tanh(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    wide = TensorSpec(spec.shape, wide_dtype(spec.dtype))
    x = e.operand(node.inputs[0], spec.shape, wide.dtype)
    kind = tensor_type(wide)
    if wide.dtype is not f64:
        e.alias(node, e.convert(e.new(f"stablehlo.tanh {x} : {kind}"), wide, spec.dtype))
        return
    # IREE's llvm-cpu has no tanh of f64: expm1(2x) / (expm1(2x) + 2), and tanh(20) is 1 in f64.
    low, high, two = (e.constant(wide.dtype.numpy.type(number), wide) for number in (-20, 20, 2))
    inside = e.new(f"stablehlo.clamp {low}, {x}, {high} : {kind}")
    doubled = e.new(f"stablehlo.add {inside}, {inside} : {kind}")
    above = e.new(f"stablehlo.exponential_minus_one {doubled} : {kind}")
    below = e.new(f"stablehlo.add {above}, {two} : {kind}")
    e.define(node, f"stablehlo.divide {above}, {below} : {kind}")


@emits("sign")
def _sign(e: Emitter, node: Node) -> None:
    """By comparisons: IREE's vmvx has no copysign, with which stablehlo.sign would be computed."""
    narrow = node.results[0].spec
    spec = TensorSpec(narrow.shape, wide_dtype(narrow.dtype))
    x = e.operand(node.inputs[0], spec.shape, spec.dtype)
    zero, one, minus_one = (e.constant(spec.dtype.numpy.type(number), spec) for number in (0, 1, -1))
    types = f"{tensor_type(TensorSpec(spec.shape, 'bool'))}, {tensor_type(spec)}"
    below = e.new(f"stablehlo.select {e.compare('LT', x, zero, spec)}, {minus_one}, {x} : {types}")
    result = e.new(f"stablehlo.select {e.compare('GT', x, zero, spec)}, {one}, {below} : {types}")
    e.alias(node, e.convert(result, spec, narrow.dtype))


@emits(*_COMPARE)
def _compare(e: Emitter, node: Node) -> None:
    spec = TensorSpec(node.results[0].shape, wide_dtype(common_dtype(node.inputs)))
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
    wide = TensorSpec(spec.shape, wide_dtype(spec.dtype))
    x, low, high = (e.operand(value, spec.shape, wide.dtype) for value in node.inputs)
    result = e.new(f"stablehlo.clamp {low}, {x}, {high} : {tensor_type(wide)}")
    e.alias(node, e.convert(result, wide, spec.dtype))


@emits("cast")
def _cast(e: Emitter, node: Node) -> None:
    x = node.inputs[0]
    e.alias(node, e.convert(e.name(x), x.spec, node.attributes[0]))
