"""Emission of elementwise ops."""

from typing import Final

from compile_dag import Node, Value
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import tensor_type
from lang_core import DType, TensorSpec, f32, f64, i32, promote, u8

_NAMES: Final = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
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


@emits("shift_right_logical")
def _shift_right_logical(e: Emitter, node: Node) -> None:
    """Of 8 bits in i32: IREE's vmvx widens them with their sign first."""
    spec = node.results[0].spec
    x, y = (e.operand(value, spec.shape, spec.dtype) for value in node.inputs)
    if spec.dtype.itemsize > 1:
        e.define(node, f"stablehlo.shift_right_logical {x}, {y} : {tensor_type(spec)}")
        return
    wide = TensorSpec(spec.shape, i32)
    shifted = e.new(
        f"stablehlo.shift_right_logical {low_bits(e, x, spec)}, {low_bits(e, y, spec)} : {tensor_type(wide)}"
    )
    e.alias(node, e.convert(shifted, wide, spec.dtype))


def low_bits(e: Emitter, name: str, spec: TensorSpec) -> str:
    """An 8-bit value as an i32 of 0 .. 255. IREE 3.13 takes the sign of u8 along unless the bits are masked."""
    wide = TensorSpec(spec.shape, i32)
    mask = e.constant(i32.numpy.type(255), wide)
    return e.new(f"stablehlo.and {e.convert(name, spec, i32)}, {mask} : {tensor_type(wide)}")


@emits("quotient")
def _quotient(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    x, y = (e.operand(value, spec.shape, spec.dtype) for value in node.inputs)
    if spec.dtype is not u8:
        e.define(node, f"stablehlo.divide {x}, {y} : {tensor_type(spec)}")
        return
    wide = TensorSpec(spec.shape, i32)
    result = e.new(f"stablehlo.divide {low_bits(e, x, spec)}, {low_bits(e, y, spec)} : {tensor_type(wide)}")
    e.alias(node, e.convert(result, wide, spec.dtype))


@emits("rem")
def _rem(e: Emitter, node: Node) -> None:
    narrow = node.results[0].spec
    spec = TensorSpec(narrow.shape, wide_dtype(narrow.dtype))
    x, y = (e.operand(value, spec.shape, spec.dtype) for value in node.inputs)
    if spec.dtype is u8:
        wide = TensorSpec(spec.shape, i32)
        rest = e.new(f"stablehlo.remainder {low_bits(e, x, spec)}, {low_bits(e, y, spec)} : {tensor_type(wide)}")
        e.alias(node, e.convert(rest, wide, spec.dtype))
        return
    result = _rem_float(e, x, y, spec) if spec.dtype.is_floating else _rem_signed(e, x, y, spec)
    e.alias(node, e.convert(result, spec, narrow.dtype))


def _rem_signed(e: Emitter, x: str, y: str, spec: TensorSpec) -> str:
    """By unsigned numbers: on Vulkan the sign of a negative x is lost otherwise."""
    kind = tensor_type(spec)
    unsigned = kind.replace("xi", "xui").replace("<i", "<ui")
    sizes = [e.new(f"stablehlo.abs {name} : {kind}") for name in (x, y)]
    sizes = [e.new(f"stablehlo.bitcast_convert {name} : ({kind}) -> {unsigned}") for name in sizes]
    rest = e.new(f"stablehlo.remainder {', '.join(sizes)} : {unsigned}")
    rest = e.new(f"stablehlo.bitcast_convert {rest} : ({unsigned}) -> {kind}")
    negative = e.compare("LT", x, e.constant(spec.dtype.numpy.type(0), spec), spec)
    return e.select(negative, e.new(f"stablehlo.negate {rest} : {kind}"), rest, spec)


def _rem_float(e: Emitter, x: str, y: str, spec: TensorSpec) -> str:
    """The remainder with x's sign, x itself where it is the smaller: not so on vmvx, and on Vulkan for infinite y."""
    kind, flags = tensor_type(spec), tensor_type(TensorSpec(spec.shape, "bool"))
    zero = e.constant(spec.dtype.numpy.type(0), spec)
    rest = e.new(f"stablehlo.remainder {x}, {y} : {kind}")
    size_x, size_y = (e.new(f"stablehlo.abs {name} : {kind}") for name in (x, y))
    below, above = e.compare("LT", x, zero, spec), e.compare("GT", x, zero, spec)
    rest_below, rest_above = e.compare("LT", rest, zero, spec), e.compare("GT", rest, zero, spec)
    lower = e.new(f"stablehlo.and {below}, {rest_above} : {flags}")
    higher = e.new(f"stablehlo.and {above}, {rest_below} : {flags}")
    rest = e.select(lower, e.new(f"stablehlo.subtract {rest}, {size_y} : {kind}"), rest, spec)
    rest = e.select(higher, e.new(f"stablehlo.add {rest}, {size_y} : {kind}"), rest, spec)
    return e.select(e.compare("LT", size_x, size_y, spec), x, rest, spec)


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
    below = e.select(e.compare("LT", x, zero, spec), minus_one, x, spec)
    result = e.select(e.compare("GT", x, zero, spec), one, below, spec)
    e.alias(node, e.convert(result, spec, narrow.dtype))


@emits(*_COMPARE)
def _compare(e: Emitter, node: Node) -> None:
    spec = TensorSpec(node.results[0].shape, wide_dtype(common_dtype(node.inputs)))
    x, y = (e.operand(value, spec.shape, spec.dtype) for value in node.inputs)
    e.alias(node, e.compare(_COMPARE[node.op.name], x, y, spec))


@emits("select")
def _select(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    pred, on_true, on_false = node.inputs
    condition = e.operand(pred, spec.shape, pred.dtype)
    x, y = (e.operand(value, spec.shape, spec.dtype) for value in (on_true, on_false))
    if spec.dtype.itemsize != 2:
        e.alias(node, e.select(condition, x, y, spec))
        return
    # As bits: a constant among the operands becomes a 16-bit float constant, which IREE's vmvx does not have.
    kind, flags = tensor_type(spec), tensor_type(TensorSpec(spec.shape, "bool"))
    bits = kind.replace(f"{spec.dtype.name}>", "i16>")
    x, y = (e.new(f"stablehlo.bitcast_convert {name} : ({kind}) -> {bits}") for name in (x, y))
    chosen = e.new(f"stablehlo.select {condition}, {x}, {y} : {flags}, {bits}")
    e.define(node, f"stablehlo.bitcast_convert {chosen} : ({bits}) -> {kind}")


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
