"""Emission of elementwise ops."""

from typing import Final

from compile_dag import Node, Value
from compile_hlo.emit._builder import Builder
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._types import tensor_type
from lang_core import DType, TensorSpec, i32, promote

# StableHLO's names.
_NAMES: Final = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "quotient": "divide",
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
    "sign": "sign",
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
    """Returns the dtype to which operands promote; the op's contract has checked that there is one."""
    dtype = values[0].dtype
    for value in values[1:]:
        dtype = promote(dtype, value.dtype) or dtype
    return dtype


@emits(*_NAMES)
def _plain(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    wide = TensorSpec(spec.shape, spec.dtype.accumulation)
    operands = [e.operand(value, spec.shape, wide.dtype) for value in node.inputs]
    e.alias(node, e.convert(e.elementwise(_NAMES[node.op.name], operands, wide), wide, spec.dtype))


def low_bits(e: Builder, name: str, spec: TensorSpec) -> str:
    """Returns an 8-bit value's bits as an i32 of 0 .. 255, whether it is signed or not."""
    wide = TensorSpec(spec.shape, i32)
    mask = e.filled(255, wide)
    return e.elementwise("and", (e.convert(name, spec, i32), mask), wide)


@emits(*_COMPARE)
def _compare(e: Emitter, node: Node) -> None:
    spec = TensorSpec(node.results[0].shape, common_dtype(node.inputs).accumulation)
    x, y = (e.operand(value, spec.shape, spec.dtype) for value in node.inputs)
    e.alias(node, e.compare(_COMPARE[node.op.name], x, y, spec))


@emits("select")
def _select(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    pred, on_true, on_false = node.inputs
    condition = e.operand(pred, spec.shape, pred.dtype)
    x, y = (e.operand(value, spec.shape, spec.dtype) for value in (on_true, on_false))
    e.alias(node, chosen(e, condition, x, y, spec))


@overridable("select")
def chosen(e: Builder, condition: str, x: str, y: str, spec: TensorSpec) -> str:
    """Chooses between operands, which may be constants."""
    return e.select(condition, x, y, spec)


@emits("clamp")
def _clamp(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    wide = TensorSpec(spec.shape, spec.dtype.accumulation)
    x, low, high = (e.operand(value, spec.shape, wide.dtype) for value in node.inputs)
    result = e.new(f"stablehlo.clamp {low}, {x}, {high} : {tensor_type(wide)}")
    e.alias(node, e.convert(result, wide, spec.dtype))


@emits("cast")
def _cast(e: Emitter, node: Node) -> None:
    x = node.inputs[0]
    e.alias(node, e.convert(e.name(x), x.spec, node.attributes[0]))
