"""Elementwise ops. Shapes broadcast and dtypes promote as in NumPy."""

import functools
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lang_core._dtypes import DType, as_dtype, bool_, promote
from lang_core._spec import TensorSpec
from lang_core._tensor import Tensor
from lang_core.ops._base import Operand, OpsBase, number_dtype
from lang_core.ops._op import Array, Specs, broadcast_shapes, define_op, require

_BROADCAST: Final = "the shapes broadcast by NumPy's rules"
_PROMOTE: Final = "the dtypes promote, by numpy.result_type, to one of the table's dtypes"
_DOMAINS: Final[dict[str, Callable[[DType], bool]]] = {
    "floating": lambda dtype: dtype.is_floating,
    "an integer": lambda dtype: dtype.is_integer,
    "a number": lambda dtype: dtype is not bool_,
    "signed": lambda dtype: dtype is not bool_ and dtype.name != "u8",
    "bool": lambda dtype: dtype is bool_,
    "any": lambda dtype: True,
}


def promoted_dtype(dtypes: tuple[DType, ...], label: str) -> DType:
    """Returns the common dtype of the operands."""
    common = dtypes[0]
    for dtype in dtypes[1:]:
        promoted = promote(common, dtype)
        require(promoted is not None, label, f"{common} and {dtype} promote to no dtype of the table: cast one of them")
        common = promoted or common
    return common


def _rule(name: str, domain: str, result: DType | None) -> Callable[..., Specs]:
    def rule(*specs: TensorSpec) -> Specs:
        common = promoted_dtype(tuple(spec.dtype for spec in specs), f"{name}_c2")
        require(_DOMAINS[domain](common), f"{name}_c3", f"the dtype is {common}, not {domain}")
        shape = broadcast_shapes(tuple(spec.shape for spec in specs), f"{name}_c1")
        return (TensorSpec(shape, result or common),)

    return rule


def _unary_rule(name: str, domain: str) -> Callable[..., Specs]:
    def rule(x: TensorSpec) -> Specs:
        require(_DOMAINS[domain](x.dtype), f"{name}_c1", f"the dtype is {x.dtype}, not {domain}")
        return (x,)

    return rule


def _constraints(domain: str) -> tuple[str, ...]:
    return (_BROADCAST, _PROMOTE) if domain == "any" else (_BROADCAST, _PROMOTE, f"the common dtype is {domain}")


def _binary(name: str, numpy: Callable[..., Any], domain: str, summary: str, result: DType | None = None) -> Any:
    rule = _rule(name, domain, result)
    op = define_op(name, summary=summary, constraints=_constraints(domain), shape_rule=rule, eager_rule=numpy)

    def method(self: OpsBase, x: Operand, y: Operand) -> Tensor:
        if isinstance(x, Tensor):
            if isinstance(y, Tensor):
                return self._ctx.apply(op, (x, y))[0]
            if type(y) is float or type(y) is int or type(y) is bool:  # not a NumPy scalar: that is data
                return self._ctx.apply(op, (x, self._ctx.number(y, number_dtype(y, x.spec.dtype))))[0]
        return self._ctx.apply(op, self._tensors(op, (x, y)))[0]

    method.__name__, method.__qualname__, method.__doc__ = name, f"Ops.{name}", summary
    return method


def _unary(name: str, numpy: Callable[..., Any], domain: str, summary: str) -> Any:
    constraints, rule = (f"the dtype is {domain}",), _unary_rule(name, domain)
    op = define_op(name, summary=summary, constraints=constraints, shape_rule=rule, eager_rule=numpy)

    def method(self: OpsBase, x: Operand) -> Tensor:
        return self._ctx.apply(op, (x,))[0]

    method.__name__, method.__qualname__, method.__doc__ = name, f"Ops.{name}", summary
    return method


def _in_float32(function: Callable[..., Array]) -> Callable[..., Array]:
    """Computes f16 and bf16 in f32: one rounding at the end instead of one per step."""

    @functools.wraps(function)
    def rule(*operands: Array) -> Array:
        dtype = np.result_type(*operands)
        if dtype.itemsize != 2:  # among the table's dtypes, only f16 and bf16 have 2 bytes
            return function(*operands)
        return function(*(x.astype(np.float32) for x in operands)).astype(dtype)

    return rule


def _logistic(x: Array) -> Array:
    z = np.exp(-np.abs(x))  # of no positive number: no overflow on either side
    return np.where(x < 0, z, np.ones_like(z)) / (1 + z)


def _sign(x: Array) -> Array:
    return np.where(x == 0, x, np.sign(x))  # -0.0 stays as it is


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


_math_erf = np.vectorize(math.erf, otypes=[np.float64])


def _erf(x: Array) -> Array:
    return _math_erf(x).astype(x.dtype) if x.size else x


def _quotient(x: Array, y: Array) -> Array:
    return np.floor_divide(x - np.fmod(x, y), y)  # exact: // alone rounds down


def _shift_right_logical(x: Array, y: Array) -> Array:
    dtype = np.result_type(x, y)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return np.right_shift(x.astype(dtype).view(unsigned), y.astype(dtype).view(unsigned)).view(dtype)


def _power(x: Array, y: Array) -> Array:
    """Returns x to the power y; NumPy takes the square root for a lone y of 0.5, which differs at -0.0 and -inf."""
    if y.size == 1 and y.reshape(-1)[0] == 0.5:
        result = np.power(x, y)
        return np.where(x == 0, np.zeros_like(result), np.where(np.isneginf(x), -x, result))
    return np.power(x, y)


class ArithmeticOps(OpsBase):
    """Arithmetic, comparison and logic."""

    __slots__ = ()

    add = _binary("add", np.add, "a number", "x + y. Integers wrap.")
    sub = _binary("sub", np.subtract, "a number", "x - y. Integers wrap.")
    mul = _binary("mul", np.multiply, "a number", "x * y. Integers wrap.")
    div = _binary("div", np.divide, "floating", "x / y, by IEEE 754.")
    rem = _binary(
        "rem",
        _in_float32(np.fmod),
        "a number",
        "x - y * trunc(x / y): the sign is x's. Of integers by 0 it is unspecified.",
    )
    quotient = _binary(
        "quotient",
        _quotient,
        "an integer",
        "x / y towards zero, so that x = quotient * y + rem. By 0 it is unspecified.",
    )
    pow = _binary("pow", _in_float32(_power), "floating", "x to the power y, as C's pow: 1 if y is 0 or x is 1.")
    maximum = _binary("maximum", np.maximum, "a number", "The larger of x and y; NaN if either is NaN.")
    minimum = _binary("minimum", np.minimum, "a number", "The smaller of x and y; NaN if either is NaN.")

    equal = _binary("equal", np.equal, "any", "x == y; False if either is NaN.", bool_)
    not_equal = _binary("not_equal", np.not_equal, "any", "x != y; True if either is NaN.", bool_)
    less = _binary("less", np.less, "a number", "x < y; False if either is NaN.", bool_)
    less_equal = _binary("less_equal", np.less_equal, "a number", "x <= y; False if either is NaN.", bool_)
    greater = _binary("greater", np.greater, "a number", "x > y; False if either is NaN.", bool_)
    greater_equal = _binary("greater_equal", np.greater_equal, "a number", "x >= y; False if either is NaN.", bool_)

    logical_and = _binary("logical_and", np.logical_and, "bool", "True where both hold.")
    logical_or = _binary("logical_or", np.logical_or, "bool", "True where either holds.")
    logical_xor = _binary("logical_xor", np.logical_xor, "bool", "True where exactly one holds.")
    logical_not = _unary("logical_not", np.logical_not, "bool", "True where x does not hold.")
    bitwise_and = _binary("bitwise_and", np.bitwise_and, "an integer", "The bits that are set in both.")
    bitwise_or = _binary("bitwise_or", np.bitwise_or, "an integer", "The bits that are set in either.")
    bitwise_xor = _binary("bitwise_xor", np.bitwise_xor, "an integer", "The bits that are set in exactly one.")
    shift_left = _binary("shift_left", np.left_shift, "an integer", "x shifted left by 0 <= y < its bits.")
    shift_right_logical = _binary(
        "shift_right_logical",
        _shift_right_logical,
        "an integer",
        "x shifted right by 0 <= y < its bits, zeros come in.",
    )


class MathOps(OpsBase):
    """Functions of one number, and the ops that choose between numbers."""

    __slots__ = ()

    negate = _unary("negate", np.negative, "a number", "-x. Integers wrap.")
    abs = _unary("abs", np.abs, "signed", "|x|. The smallest integer stays as it is.")
    sign = _unary("sign", _sign, "signed", "-1, 0 or 1 by the sign of x; NaN and -0.0 stay as they are.")
    exp = _unary("exp", _in_float32(np.exp), "floating", "e to the power x.")
    expm1 = _unary("expm1", _in_float32(np.expm1), "floating", "exp(x) - 1, accurate near 0.")
    log = _unary("log", _in_float32(np.log), "floating", "The natural logarithm; NaN below 0.")
    log1p = _unary("log1p", _in_float32(np.log1p), "floating", "log(1 + x), accurate near 0.")
    tanh = _unary("tanh", _in_float32(np.tanh), "floating", "The hyperbolic tangent.")
    logistic = _unary("logistic", _in_float32(_logistic), "floating", "1 / (1 + exp(-x)).")
    erf = _unary("erf", _erf, "floating", "The error function.")
    sqrt = _unary("sqrt", _in_float32(np.sqrt), "floating", "The square root; NaN below 0.")
    rsqrt = _unary("rsqrt", _in_float32(_rsqrt), "floating", "1 / sqrt(x).")
    sin = _unary("sin", _in_float32(np.sin), "floating", "The sine of x in radians.")
    cos = _unary("cos", _in_float32(np.cos), "floating", "The cosine of x in radians.")
    floor = _unary("floor", np.floor, "floating", "The largest integer not above x.")
    ceil = _unary("ceil", np.ceil, "floating", "The smallest integer not below x.")
    round = _unary("round", np.rint, "floating", "The nearest integer, halves to even.")

    def select(self, pred: Operand, on_true: Operand, on_false: Operand) -> Tensor:
        """Returns ``on_true`` where ``pred`` (bool) holds, else ``on_false``; the three broadcast."""
        on_true, on_false = self._tensors(_SELECT, (on_true, on_false))
        return self._apply(_SELECT, (pred, on_true, on_false))

    def clamp(self, x: Operand, low: Operand, high: Operand) -> Tensor:
        """Returns ``min(max(x, low), high)``, as StableHLO's clamp: NaN stays NaN."""
        return self._apply(_CLAMP, self._tensors(_CLAMP, (x, low, high)))

    def cast(self, x: Operand, dtype: DType | str) -> Tensor:
        """Returns x in another dtype; x itself if it has that dtype already.

        Floats round to nearest even (to bf16 by way of f32); integers wrap; a float becomes an integer by
        truncation, which is defined only if the integer can be represented; a number becomes bool by ``x != 0``.
        """
        if isinstance(x, Tensor) and x.dtype is as_dtype(dtype):
            return x
        wanted = as_dtype(dtype)
        if isinstance(x, Tensor) and x.spec.dtype is wanted:
            return x
        return self._apply(_CAST, (x,), (wanted,))


def _infer_select(pred: TensorSpec, on_true: TensorSpec, on_false: TensorSpec) -> Specs:
    dtype = promoted_dtype((on_true.dtype, on_false.dtype), "select_c2")
    require(pred.dtype is bool_, "select_c3", f"pred is {pred.dtype}, not bool")
    return (TensorSpec(broadcast_shapes((pred.shape, on_true.shape, on_false.shape), "select_c1"), dtype),)


_SELECT = define_op(
    "select",
    summary="on_true where pred holds, else on_false.",
    constraints=(_BROADCAST, f"on_true, on_false: {_PROMOTE}", "pred is bool"),
    shape_rule=_infer_select,
    eager_rule=np.where,
)
_CLAMP = define_op(
    "clamp",
    summary="min(max(x, low), high); NaN stays NaN.",
    constraints=_constraints("a number"),
    shape_rule=_rule("clamp", "a number", None),
    eager_rule=lambda x, low, high: np.minimum(np.maximum(x, low), high),
)
_CAST = define_op(
    "cast",
    attributes=("dtype",),
    summary="x in another dtype: to nearest even, towards zero for integers, x != 0 for bool.",
    shape_rule=lambda x, dtype: (TensorSpec(x.shape, dtype),),
    eager_rule=lambda x, dtype: x.astype(dtype.numpy, copy=False),
)
