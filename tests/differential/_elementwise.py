"""Trials of elementwise ops."""

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from lang_core import DTYPES, DType, as_dtype, bf16, bool_
from tests.differential._draw import DOMAINS, dtype_of, generator, shape_of, tiny_of, wild
from tests.differential._trial import Array, Draw, Trial, trials

Function = Callable[..., Any]


def _broadcasting(function: Function) -> Function:
    """Lets a function of jax.lax broadcast its operands."""
    return lambda x, y: function(*jnp.broadcast_arrays(x, y))


# name -> domain, jax's function, units in the last place that f32 and f64 may be off.
_UNARY: Final[dict[str, tuple[str, Function, float]]] = {
    "logical_not": ("bool", jnp.logical_not, 0),
    "negate": ("number", jnp.negative, 0),
    "abs": ("signed", jnp.abs, 0),
    "sign": ("signed", jnp.sign, 0),
    "exp": ("floating", jnp.exp, 4),
    "expm1": ("floating", jnp.expm1, 4),
    "log": ("floating", jnp.log, 4),
    "log1p": ("floating", jnp.log1p, 4),
    "tanh": ("floating", jnp.tanh, 4),
    "logistic": ("floating", jax.nn.sigmoid, 4),
    "erf": ("floating", lax.erf, 4),
    "sqrt": ("floating", jnp.sqrt, 0),
    "rsqrt": ("floating", lax.rsqrt, 2),
    "sin": ("floating", jnp.sin, 4),
    "cos": ("floating", jnp.cos, 4),
    "floor": ("floating", jnp.floor, 0),
    "ceil": ("floating", jnp.ceil, 0),
    "round": ("floating", jnp.round, 0),
}
_BINARY: Final[dict[str, tuple[str, Function, float]]] = {
    "add": ("number", jnp.add, 0),
    "sub": ("number", jnp.subtract, 0),
    "mul": ("number", jnp.multiply, 0),
    "div": ("floating", jnp.divide, 0),
    "quotient": ("integer", _broadcasting(lax.div), 0),
    "rem": ("number", _broadcasting(lax.rem), 0),
    "pow": ("floating", jnp.power, 4),
    "maximum": ("number", jnp.maximum, 0),
    "minimum": ("number", jnp.minimum, 0),
    "equal": ("any", jnp.equal, 0),
    "not_equal": ("any", jnp.not_equal, 0),
    "less": ("number", jnp.less, 0),
    "less_equal": ("number", jnp.less_equal, 0),
    "greater": ("number", jnp.greater, 0),
    "greater_equal": ("number", jnp.greater_equal, 0),
    "logical_and": ("bool", jnp.logical_and, 0),
    "logical_or": ("bool", jnp.logical_or, 0),
    "logical_xor": ("bool", jnp.logical_xor, 0),
    "bitwise_and": ("integer", jnp.bitwise_and, 0),
    "bitwise_or": ("integer", jnp.bitwise_or, 0),
    "bitwise_xor": ("integer", jnp.bitwise_xor, 0),
    "shift_left": ("integer", _broadcasting(lax.shift_left), 0),
    "shift_right_logical": ("integer", _broadcasting(lax.shift_right_logical), 0),
}
_OF_QUOTIENTS: Final = ("quotient", "rem")
_COMPARISONS: Final = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_EITHER_ZERO: Final = ("maximum", "minimum", "clamp")
_NUMBERS: Final = (True, 0, 1, 2, 100, 0.5, -2.0, -0.0, float("inf"), float("nan"))


# Where jax itself is less exact in f64; it divides by multiplying with the reciprocal of what it broadcasts.
_JAX_F64: Final = {"div": 1.0, "log1p": 128.0}


def _ulps(name: str, dtype: DType, steps: float) -> float:
    """Returns how far a result may be off: 16 bits are computed in 32, so they are rounded once."""
    if dtype.name == "f64":
        return _JAX_F64.get(name, steps)
    return min(steps, 1.0) if dtype.itemsize == 2 else steps


def common(*dtypes: DType) -> DType | None:
    """Returns NumPy's promotion of dtypes, if it is in the table."""
    try:
        promoted = np.result_type(*(t.numpy for t in dtypes))
    except TypeError:  # there is no such thing
        return None
    return next((t for t in DTYPES if t.numpy == promoted), None)


_PAIRS: Final = [(a, b) for a in DTYPES for b in DTYPES if common(a, b) is not None]


def _operands(draw: Draw, domain: str) -> tuple[DType, DType, DType]:
    """Two dtypes and their common one, which is of the domain."""
    pairs = [(a, b, c) for a, b in _PAIRS if (c := common(a, b)) in DOMAINS[domain]]
    same = [pair for pair in pairs if pair[0] is pair[1]]
    return draw(st.sampled_from(pairs if draw(st.booleans()) else same))


def _broadcast(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another one, or to one together with it."""
    tail = shape[draw(st.integers(0, len(shape))) :]
    return tuple(1 if draw(st.integers(0, 3)) == 0 else dim for dim in tail)


@trials(*_UNARY)
def _unary(draw: Draw, name: str) -> Trial:
    domain, function, steps = _UNARY[name]
    dtype, rng = dtype_of(draw, domain), generator(draw)
    x = wild(rng, shape_of(draw), dtype)
    ulps = _ulps(name, dtype, steps)
    return Trial(name, "", lambda c, x: getattr(c.ops, name)(x), (x,), function, (dtype.name,), ulps=ulps)


def _second(name: str, y: Array, dtype: DType) -> Array:
    """The right operand: without what the op leaves unspecified, or what jax cannot divide by."""
    if name == "div" and dtype.name == "f64":
        return np.where(np.abs(y.astype(np.float64)) > 2.0**1000, np.array(3, y.dtype), y)  # 1 / y would be subnormal
    if name in _OF_QUOTIENTS and dtype.is_integer:
        return np.where(y == 0, np.array(3, y.dtype), y)
    if name.startswith("shift"):
        return (y.astype(np.int64) % (8 * dtype.itemsize)).astype(y.dtype)
    return y


def _with_number(draw: Draw, name: str) -> Trial:
    """A Python number for one of the operands."""
    domain, function, steps = _BINARY[name]
    known = [(t, n, c) for t in DTYPES for n in _NUMBERS if (c := _beside(t, n)) in DOMAINS[domain]]
    if name in _OF_QUOTIENTS:
        known = [entry for entry in known if entry[1]]
    if name.startswith("shift"):
        known = [entry for entry in known if 0 <= entry[1] < 8 * entry[2].itemsize]
    a, number, dtype = draw(st.sampled_from(known))
    x = wild(generator(draw), shape_of(draw), a)
    turned = draw(st.booleans()) and name not in _OF_QUOTIENTS and "shift" not in name
    given = x.astype(dtype.numpy), np.array(number).astype(dtype.numpy)
    return Trial(
        name,
        f"{number!r} on the {'left' if turned else 'right'}",
        lambda c, x: getattr(c.ops, name)(number, x) if turned else getattr(c.ops, name)(x, number),
        (x,),
        function,
        ("bool" if name in _COMPARISONS else dtype.name,),
        given=given[::-1] if turned else given,
        ulps=_ulps(name, dtype, steps),
        either_zero=name in _EITHER_ZERO,
    )


def _beside(dtype: DType, number: bool | float) -> DType:
    """The common dtype of a tensor and a Python number, which is weak: NEP 50, extended to bf16."""
    return bf16 if dtype is bf16 else as_dtype(np.result_type(dtype.numpy, number))


@trials(*_BINARY)
def _binary(draw: Draw, name: str) -> Trial:
    if draw(st.integers(0, 7)) == 0:
        return _with_number(draw, name)
    domain, function, steps = _BINARY[name]
    a, b, dtype = _operands(draw, domain)
    rng, shape = generator(draw), shape_of(draw)
    shapes = shape, _broadcast(draw, shape)
    if draw(st.booleans()):
        shapes = shapes[::-1]
    x, y = wild(rng, shapes[0], a), _second(name, wild(rng, shapes[1], b), dtype)
    given = x.astype(dtype.numpy), y.astype(dtype.numpy)
    result = "bool" if name in _COMPARISONS else dtype.name
    return Trial(
        name,
        "",
        lambda c, x, y: getattr(c.ops, name)(x, y),
        (x, y),
        function,
        (result,),
        given=given,
        ulps=_ulps(name, dtype, steps),
        either_zero=name in _EITHER_ZERO,
    )


@trials("select")
def _select(draw: Draw, name: str) -> Trial:
    a, b, dtype = _operands(draw, "any")
    rng, shape = generator(draw), shape_of(draw)
    x, y = wild(rng, _broadcast(draw, shape), a, True), wild(rng, shape, b, True)
    pred = wild(rng, _broadcast(draw, shape), bool_)
    given = pred, x.astype(dtype.numpy), y.astype(dtype.numpy)
    fn = lambda c, p, x, y: c.ops.select(p, x, y)  # noqa: E731
    return Trial(name, "", fn, (pred, x, y), jnp.where, (dtype.name,), given=given, exact=True)


@trials("clamp")
def _clamp(draw: Draw, name: str) -> Trial:
    a, b, dtype = _operands(draw, "number")
    rng, shape = generator(draw), shape_of(draw)
    x, low, high = wild(rng, shape, a), wild(rng, _broadcast(draw, shape), b), wild(rng, _broadcast(draw, shape), b)
    given = tuple(np.broadcast_to(v.astype(dtype.numpy), shape) for v in (low, x, high))
    fn = lambda c, x, low, high: c.ops.clamp(x, low, high)  # noqa: E731
    return Trial(name, "", fn, (x, low, high), lax.clamp, (dtype.name,), given=given, either_zero=True)


@trials("cast")
def _cast(draw: Draw, name: str) -> Trial:
    source, target = dtype_of(draw, "any"), dtype_of(draw, "any")
    x = _castable(wild(generator(draw), shape_of(draw), source), source, target)
    wanted = jnp.dtype(target.numpy)
    fn = lambda c, x: c.ops.cast(x, target)  # noqa: E731
    return Trial(name, f"dtype={target}", fn, (x,), lambda x: x.astype(wanted), (target.name,))


def _castable(x: Array, source: DType, target: DType) -> Array:
    """x without what the target cannot represent, and without what jax flushes to 0."""
    if target.name in ("f32", "bf16"):
        flushed = np.abs(x.astype(np.float64)) < tiny_of(target)
        return np.where(flushed, np.array(0, x.dtype), x)
    if not source.is_floating or not target.is_integer:
        return x
    low, high = float(np.iinfo(target.numpy).min), float(np.iinfo(target.numpy).max)
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        good = (np.trunc(wide) >= low) & (np.trunc(wide) <= high) & (wide < 2.0**63)
    return np.where(good, x, np.array(1, x.dtype))
