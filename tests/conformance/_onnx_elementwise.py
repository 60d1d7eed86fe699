"""Adapters of ONNX's elementwise ops."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from lang_core import DType, Tensor, as_dtype, bool_, u8
from tests.conformance._onnx_node import ADAPTERS, Array, Node, NotExpressible, adapts, dtype_numbered

_UNARY: Final = {
    "Neg": "negate",
    "Exp": "exp",
    "Log": "log",
    "Tanh": "tanh",
    "Sigmoid": "logistic",
    "Erf": "erf",
    "Sqrt": "sqrt",
    "Sin": "sin",
    "Cos": "cos",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Not": "logical_not",
    "Softplus": "softplus",
}
_BINARY: Final = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}


def _unary(name: str) -> Callable[[Node], Tensor]:
    return lambda node: getattr(node.ops, name)(node.tensor(0))


def _binary(name: str) -> Callable[[Node], Tensor]:
    return lambda node: getattr(node.ops, name)(node.tensor(0), node.tensor(1))


ADAPTERS.update({kind: _unary(name) for kind, name in _UNARY.items()})
ADAPTERS.update({kind: _binary(name) for kind, name in _BINARY.items()})


@adapts("Abs")
def _abs(node: Node) -> Tensor:
    x = node.tensor(0)
    return x if x.dtype is u8 else node.ops.abs(x)


@adapts("Sign")
def _sign(node: Node) -> Tensor:
    x = node.tensor(0)
    return node.ops.minimum(x, 1) if x.dtype is u8 else node.ops.sign(x)


@adapts("Div")
def _div(node: Node) -> Tensor:
    x, y = node.tensor(0), node.tensor(1)
    return node.ops.div(x, y) if x.dtype.is_floating else node.ops.quotient(x, y)


@adapts("Mod")
def _mod(node: Node) -> Tensor:
    """Returns the remainder: with fmod it has the sign of x, else that of y."""
    ops, x, y = node.ops, node.tensor(0), node.tensor(1)
    rest = ops.rem(x, y)
    if node.attribute("fmod", 0) or x.dtype is u8:
        return rest
    turned = ops.logical_and(ops.not_equal(rest, 0), ops.not_equal(ops.less(rest, 0), ops.less(y, 0)))
    return ops.select(turned, ops.add(rest, y), rest)


@adapts("Pow")
def _pow(node: Node) -> Tensor:
    x, y = node.tensor(0), node.tensor(1)
    if not x.dtype.is_floating:
        raise NotExpressible("pow of integers is not in the op table")
    return node.ops.pow(x, node.ops.cast(y, x.dtype))


@adapts("Max", "Min", "Sum", "Mean")
def _several(node: Node) -> Tensor:
    name = {"Max": "maximum", "Min": "minimum"}.get(node.kind, "add")
    result, *others = node.tensors()
    for other in others:
        result = getattr(node.ops, name)(result, other)
    return node.ops.div(result, float(1 + len(others))) if node.kind == "Mean" else result


@adapts("BitwiseNot")
def _bitwise_not(node: Node) -> Tensor:
    x = node.tensor(0)
    return node.ops.bitwise_xor(x, 255 if x.dtype is u8 else -1)


@adapts("BitShift")
def _bit_shift(node: Node) -> Tensor:
    """Bits come in as zeros, from the left as the sign; a shift that ours leave unspecified brings in nothing else."""
    ops, x, y = node.ops, node.tensor(0), node.tensor(1)
    left, bits = node.attribute("direction") == "LEFT", 8 * x.dtype.itemsize
    shift, ones = (ops.shift_left if left else ops.shift_right_logical), 255 if x.dtype is u8 else -1
    turned = None if left or x.dtype is u8 else ops.less(x, 0)
    source = x if turned is None else ops.select(turned, ops.bitwise_xor(x, ones), x)
    defined = ops.logical_and(ops.greater_equal(y, 0), ops.less(y, bits))
    result = ops.select(defined, shift(source, ops.clamp(y, 0, bits - 1)), ops.zeros((), x.dtype))
    return result if turned is None else ops.select(turned, ops.bitwise_xor(result, ones), result)


@adapts("Where")
def _where(node: Node) -> Tensor:
    return node.ops.select(node.tensor(0), node.tensor(1), node.tensor(2))


@adapts("IsNaN")
def _is_nan(node: Node) -> Tensor:
    return node.ops.not_equal(node.tensor(0), node.tensor(0))


@adapts("IsInf")
def _is_inf(node: Node) -> Tensor:
    ops, x = node.ops, node.tensor(0)
    below = ops.logical_and(ops.equal(x, -math.inf), bool(node.attribute("detect_negative", 1)))
    above = ops.logical_and(ops.equal(x, math.inf), bool(node.attribute("detect_positive", 1)))
    return ops.logical_or(below, above)


@adapts("Reciprocal")
def _reciprocal(node: Node) -> Tensor:
    return node.ops.div(1.0, node.tensor(0))


@adapts("Tan")
def _tan(node: Node) -> Tensor:
    x = node.ops.cast(node.tensor(0), node.tensor(0).dtype.accumulation)
    return node.ops.cast(node.ops.div(node.ops.sin(x), node.ops.cos(x)), node.tensor(0).dtype)


@adapts("Sinh", "Cosh", "Asinh", "Acosh", "Atanh")
def _hyperbolic(node: Node) -> Tensor:
    """Computes the function by exp and log, near 0 by expm1 and log1p."""
    ops = node.ops
    x = ops.cast(node.tensor(0), node.tensor(0).dtype.accumulation)
    if node.kind in ("Sinh", "Cosh"):
        up, down = ops.exp(x), ops.exp(ops.negate(x))
        if node.kind == "Sinh":
            up, down = ops.expm1(x), ops.negate(ops.expm1(ops.negate(x)))
        result = ops.mul(ops.add(up, down), 0.5)
    elif node.kind == "Atanh":
        result = ops.mul(ops.sub(ops.log1p(x), ops.log1p(ops.negate(x))), 0.5)
    elif node.kind == "Acosh":
        result = ops.log(ops.add(x, ops.mul(ops.sqrt(ops.sub(x, 1.0)), ops.sqrt(ops.add(x, 1.0)))))
    else:
        size = ops.abs(x)
        square = ops.mul(size, size)
        more = ops.div(square, ops.add(ops.sqrt(ops.add(square, 1.0)), 1.0))
        result = ops.mul(ops.sign(x), ops.log1p(ops.add(size, more)))
    return ops.cast(result, node.tensor(0).dtype)


@adapts("Clip")
def _clip(node: Node) -> Tensor:
    """Bounds are operands, or attributes in old operator sets. The upper one wins where they cross."""
    ops, x = node.ops, node.tensor(0)
    low, high = (node.optional(i) if node.has(i) else node.attribute(n) for i, n in ((1, "min"), (2, "max")))
    if low is not None:
        x = ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


@adapts("Cast")
def _cast(node: Node) -> Tensor:
    return cast_as_onnx(node, node.tensor(0), dtype_numbered(node.attribute("to")))


@adapts("CastLike")
def _cast_like(node: Node) -> Tensor:
    return cast_as_onnx(node, node.tensor(0), node.tensor(1).dtype)


def cast_as_onnx(node: Node, x: Tensor, dtype: DType) -> Tensor:
    """ONNX's Cast."""
    return node.ops.cast(x, dtype)


@adapts("Identity")
def _identity(node: Node) -> Tensor | Array:
    known = node.value(0).known
    return node.tensor(0) if known is None else known


@adapts("Dropout")
def _dropout(node: Node) -> list[Tensor | Array | None]:
    """Returns the input: at inference nothing is dropped."""
    training = node.has(2) and bool(node.known(2))
    ratio = float(node.known(1)) if training and node.has(1) else 0.5 if training else 0.0
    if ratio:
        raise NotExpressible("random numbers: the op table has none")
    return [node.tensor(0), node.ops.ones(node.tensor(0).shape, bool_) if node.wants(1) else None]


@adapts("Constant")
def _constant(node: Node) -> Array:
    for name, dtype in (("value_int", np.int64), ("value_ints", np.int64), ("value_float", np.float32)):
        if (result := node.attribute(name)) is not None:
            return np.array(result, dtype)
    if (floats := node.attribute("value_floats")) is not None:
        return np.array(floats, np.float32)
    return node.tensor_attribute("value")


def floating_operand(node: Node) -> tuple[Tensor, DType]:
    """The first operand in the dtype to compute in, and its own dtype."""
    x = node.tensor(0)
    if not as_dtype(x.dtype).is_floating:
        raise NotExpressible(f"{node.kind} of {x.dtype}")
    return node.ops.cast(x, x.dtype.accumulation), x.dtype
