"""Rules of elementwise ops: f16 and bf16 are computed in f32 and rounded once."""

from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
from jax import lax

from lang_core import DType, as_dtype, bool_
from run_jax._rules import RULES, Array, Rule, aligned, broadcast, common_dtype, computes, convert
from run_jax._tensor import is_traced


def _half_even(x: Array) -> Array:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def _larger(function: Callable[..., Array], wins: Callable[..., Array]) -> Callable[..., Array]:
    """Returns the larger or smaller operand; its gradient goes to that one, and half to each if they are equal.

    JAX's own gradient compares the operands with the result. If XLA computes an operand twice with different roundings,
    the result is equal to neither, and its gradient would be 0.
    """

    @jax.custom_jvp
    def chosen(x: Array, y: Array) -> Array:
        return function(x, y)

    @chosen.defjvp
    def _tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
        (x, y), (dx, dy) = primals, tangents
        half = (dx + dy) * np.array(0.5, x.dtype)
        return chosen(x, y), lax.select(lax.eq(x, y), half, lax.select(wins(x, y), dx, dy))

    def either(x: Array, y: Array) -> Array:
        return chosen(x, y) if as_dtype(x.dtype).is_floating else function(x, y)

    return either


@jax.custom_jvp
def _abs(x: Array) -> Array:
    """Returns |x| with the derivative 0 at 0: JAX's own is 1 there."""
    return lax.abs(x)


@_abs.defjvp
def _abs_tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    return _abs(x), dx * lax.sign(x)


@jax.custom_jvp
def _power(x: Array, y: Array) -> Array:
    """Returns x to the power y; the slope by x is 0 at y = 0, while JAX's own gradient is NaN at x = 0."""
    return lax.pow(x, y)


@_power.defjvp
def _power_tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x, y), (dx, dy) = primals, tangents
    result, zero, one = _power(x, y), lax.full_like(y, 0), lax.full_like(y, 1)
    flat = lax.eq(y, zero)
    slope = lax.select(flat, zero, y * _power(x, lax.select(flat, one, y - one)))
    log = lax.log(lax.select(lax.eq(x, zero), one, x))
    return result, dx * slope + dy * (log * result)


def _magnitude(x: Array) -> Array:
    return _abs(x) if as_dtype(x.dtype).is_floating else lax.abs(x)


def _is_zero(x: Array, other: Array, negative: bool) -> bool:
    """Returns whether an operand, beside one that JAX traces, is a constant of 0.0, or of -0.0, alone."""
    constant = not is_traced(x) and is_traced(other)
    if not constant or x.size == 0 or not as_dtype(x.dtype).is_floating:
        return False
    array = np.asarray(x)
    return not np.any(array) and bool(np.all(np.signbit(array.astype(np.float32)) == negative))


@jax.custom_jvp
def with_zero(x: Array) -> Array:
    """Returns x + 0.0 without an addition, which XLA would drop."""
    return lax.select(lax.eq(x, lax.full_like(x, 0)), lax.full_like(x, 0), x)


@with_zero.defjvp
def _with_zero_tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return with_zero(primals[0]), tangents[0]


_FUNCTIONS: Final[dict[str, Callable[..., Array]]] = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "quotient": lax.div,
    "rem": lax.rem,
    "pow": _power,
    "maximum": _larger(lax.max, lax.gt),
    "minimum": _larger(lax.min, lax.lt),
    "logical_and": lax.bitwise_and,
    "logical_or": lax.bitwise_or,
    "logical_xor": lax.bitwise_xor,
    "logical_not": lax.bitwise_not,
    "bitwise_and": lax.bitwise_and,
    "bitwise_or": lax.bitwise_or,
    "bitwise_xor": lax.bitwise_xor,
    "shift_left": lax.shift_left,
    "shift_right_logical": lax.shift_right_logical,
    "negate": lax.neg,
    "abs": _magnitude,
    "sign": lax.sign,
    "exp": lax.exp,
    "expm1": lax.expm1,
    "log": lax.log,
    "log1p": lax.log1p,
    "tanh": lax.tanh,
    "logistic": lax.logistic,
    "erf": lax.erf,
    "sqrt": lax.sqrt,
    "rsqrt": lax.rsqrt,
    "sin": lax.sin,
    "cos": lax.cos,
    "floor": lax.floor,
    "ceil": lax.ceil,
    "round": _half_even,
}
_COMPARISONS: Final = {
    "equal": lax.eq,
    "not_equal": lax.ne,
    "less": lax.lt,
    "less_equal": lax.le,
    "greater": lax.gt,
    "greater_equal": lax.ge,
}


def _elementwise(function: Callable[..., Array]) -> Rule:
    def rule(*arrays: Array) -> Array:
        dtype = common_dtype(arrays)
        return convert(function(*aligned(arrays, dtype.accumulation)), dtype)

    return rule


def _comparison(function: Callable[..., Array]) -> Rule:
    return lambda x, y: function(*aligned((x, y), common_dtype((x, y)).accumulation))


RULES.update({name: _elementwise(function) for name, function in _FUNCTIONS.items()})
RULES.update({name: _comparison(function) for name, function in _COMPARISONS.items()})


def _beside_zero(rule: Rule, negative: bool) -> Rule:
    """Returns the rule of a sum or difference that is x + 0.0 beside a zero: XLA takes that for x."""

    def of_two(x: Array, y: Array) -> Array:
        if _is_zero(y, x, negative):
            return _sum_with_zero(x, y)
        return _sum_with_zero(y, x) if not negative and _is_zero(x, y, negative) else rule(x, y)

    return of_two


def _sum_with_zero(x: Array, zero: Array) -> Array:
    dtype = common_dtype((x, zero))
    x, _ = aligned((x, zero), dtype)
    return with_zero(x) if dtype.is_floating else x


RULES["add"] = _beside_zero(RULES["add"], negative=False)
RULES["sub"] = _beside_zero(RULES["sub"], negative=True)


@computes("clamp")
def _clamp(x: Array, low: Array, high: Array) -> Array:
    dtype = common_dtype((x, low, high))
    x, low, high = aligned((x, low, high), dtype)
    return lax.clamp(low, x, high)


@computes("select")
def _select(pred: Array, on_true: Array, on_false: Array) -> Array:
    dtype = common_dtype((on_true, on_false))
    pred, on_true, on_false = (
        broadcast(array, _shape_of(pred, on_true, on_false))
        for array in (pred, convert(on_true, dtype), convert(on_false, dtype))
    )
    return lax.select(pred, on_true, on_false)


def _shape_of(*arrays: Array) -> tuple[int, ...]:
    return lax.broadcast_shapes(*(tuple(array.shape) for array in arrays))


@computes("cast")
def _cast(x: Array, dtype: DType) -> Array:
    return lax.ne(x, lax.full_like(x, 0)) if dtype is bool_ and x.dtype != bool_.numpy else convert(x, dtype)
