"""Gradients at kinks, bounds, infinities and NaN: of compile_dag and of the JAX context, against jax.grad.

Where jax.grad gives something else, the probe says what is right instead: the conventions of docs/status.md.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compile_dag.gradient import value_and_gradient
from lang_core import EagerExecutionContext
from run_jax import JaxExecutionContext, arrays_of

Array = np.ndarray[Any, Any]

_POINTS: Final = np.array(
    [
        *(0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, 10, -10, 20, -20, 100, -100, 1e4, -1e4, 1e19, -1e19, 1e30, -1e30),
        *(3e38, 1e-20, -1e-20, np.inf, -np.inf, np.nan),
    ],
    np.float32,
)
_SOME: Final = np.array([0.0, -0.0, 1, -1, 0.5, 2, -2, 3, -3, 1e10, np.inf, -np.inf, np.nan], np.float32)
_ROWS: Final = np.array(
    [
        *([1, 2, 3, 3], [3, 3, 1, 3], [0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 2, 3], [-np.inf, 0, 1, 1], [-np.inf] * 4),
        *([np.nan, 1, 2, 3], [np.nan, 1, np.nan, 3], [np.inf, 1, 2, 3], [1e30, 1e30, 0, 1e30], [5, 5, 5, 5]),
    ],
    np.float32,
)
_WEIGHTS: Final = np.random.default_rng(0).standard_normal(_ROWS.shape).astype(np.float32)


@dataclasses.dataclass(frozen=True, slots=True)
class Slope:
    """Function whose gradient is compared.

    Attributes:
        name: name of the op or composite, and what is special.
        fn: function of ``ctx.ops`` and tensors.
        reference: the same in ``jax.numpy``.
        inputs: arrays.
        instead: gradients that are right where ``jax.grad``'s are not: a function of an operand's number, the operands
            and that gradient.
    """

    name: str
    fn: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: tuple[Array, ...]
    instead: Callable[[int, tuple[Array, ...], Array], Array] | None = None


def _exactly(x: Array, where: Array, value: Any) -> Array:
    return np.where(where, np.asarray(value, x.dtype), x)


_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "negate": lambda x: -x,
    "abs": jnp.abs,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "tanh": jnp.tanh,
    "logistic": jax.nn.sigmoid,
    "erf": jax.scipy.special.erf,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "sign": jnp.sign,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round": jnp.round,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
}
_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "pow": jnp.power,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "rem": jax.lax.rem,
}


def _of_abs(_: int, given: tuple[Array, ...], slope: Array) -> Array:
    return np.sign(given[0])


def _of_pow(operand: int, given: tuple[Array, ...], slope: Array) -> Array:
    return _exactly(slope, given[-1] == 0, 0) if operand == 0 else slope


def _of_nan(operand: int, given: tuple[Array, ...], slope: Array) -> Array:
    return _exactly(slope, np.isnan(given[0]) | np.isnan(given[1]), float(operand))


def _of_extremes(_: int, given: tuple[Array, ...], slope: Array) -> Array:
    nan = np.isnan(given[0])
    count = np.maximum(nan.sum(-1, keepdims=True), 1)
    return np.where(nan.any(-1, keepdims=True), nan / count, slope).astype(np.float32)


def _of_prod(_: int, given: tuple[Array, ...], slope: Array) -> Array:
    """Returns the product of the others in f64, rounded: 1e30 * 1e30 is infinity, times 0 it is 0."""
    (x,) = given
    wide = x.astype(np.float64)
    others = [np.prod(np.delete(wide, i, -1), -1) for i in range(x.shape[-1])]
    with np.errstate(over="ignore"):
        return np.stack(others, -1).astype(np.float32)


def _slopes() -> Iterator[Slope]:
    for name, reference in _UNARY.items():
        fn = lambda o, x, name=name: getattr(o, name)(x)  # noqa: E731
        yield Slope(name, fn, reference, (_POINTS,), _of_abs if name == "abs" else None)
    pairs = tuple(x.ravel().copy() for x in np.meshgrid(_SOME, _SOME))
    instead = {"pow": _of_pow, "maximum": _of_nan, "minimum": _of_nan}
    for name, reference in _BINARY.items():
        fn = lambda o, x, y, name=name: getattr(o, name)(x, y)  # noqa: E731
        yield Slope(name, fn, reference, pairs, instead.get(name))
    for number in (0.0, 1.0, 2.0, 3.0, 0.5, -1.0):
        flat = (lambda i, given, slope: np.zeros_like(slope)) if number == 0 else None
        by, of = (lambda o, x, n=number: o.pow(x, n)), (lambda o, x, n=number: o.pow(n, x))
        yield Slope(f"pow_by_{number}", by, lambda x, n=number: jnp.power(x, jnp.float32(n)), (_SOME,), flat)
        yield Slope(f"pow_of_{number}", of, lambda x, n=number: jnp.power(jnp.float32(n), x), (_SOME,))
    yield Slope("clamp", lambda o, x: o.clamp(x, -1.0, 1.0), lambda x: jax.lax.clamp(-1.0, x, 1.0), (_POINTS,))
    for name in ("log", "sqrt", "rsqrt"):
        positive = lambda o, x, n=name: o.select(o.greater(x, 0.0), getattr(o, n)(x), 0.0)  # noqa: E731
        yield Slope(f"select_{name}", positive, lambda x, n=name: jnp.where(x > 0, _UNARY[n](x), 0.0), (_POINTS,))
    yield from _of_rows()


def _of_rows() -> Iterator[Slope]:
    reductions: dict[str, Callable[[Any], Any]] = {
        "sum": lambda x: jnp.sum(x, -1),
        "mean": lambda x: jnp.mean(x, -1),
        "max": lambda x: jnp.max(x, -1),
        "min": lambda x: jnp.min(x, -1),
    }
    for name, reference in reductions.items():
        fn = lambda o, x, name=name: getattr(o, name)(x, -1)  # noqa: E731
        yield Slope(name, fn, reference, (_ROWS,), _of_extremes if name in ("max", "min") else None)
    finite = _ROWS[[0, 1, 2, 3, 4, 10, 11]]
    yield Slope("prod", lambda o, x: o.prod(x, -1), lambda x: jnp.prod(x, -1), (finite,), _of_prod)
    ladder = np.stack([np.arange(200), 1 - np.arange(200)]).astype(np.float32)
    yield Slope("prod_of_200", lambda o, x: o.prod(x, -1), lambda x: jnp.prod(x, -1), (ladder,), _of_ladder)
    rows: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
        "softmax": (lambda o, x: o.softmax(x), jax.nn.softmax),
        "log_softmax": (lambda o, x: o.log_softmax(x), jax.nn.log_softmax),
        "cumsum": (lambda o, x: o.cumsum(x, -1), lambda x: jnp.cumsum(x, -1)),
        "sort": (lambda o, x: o.sort(x)[0], jnp.sort),
        "top_k": (lambda o, x: o.top_k(x, 4)[0], lambda x: jax.lax.top_k(x, 4)[0]),
        "rms_norm": (
            lambda o, x: o.rms_norm(x),
            lambda x: x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6),
        ),
        "l2_norm": (lambda o, x: o.l2_norm(x), lambda x: x * jax.lax.rsqrt(jnp.sum(x * x, -1, keepdims=True) + 1e-6)),
    }
    for name, (fn, reference) in rows.items():
        weighted = lambda o, x, fn=fn: o.mul(fn(o, x), o.constant(_WEIGHTS))  # noqa: E731
        yield Slope(name, weighted, lambda x, r=reference: r(x) * _WEIGHTS, (_ROWS,))


def _of_ladder(_: int, given: tuple[Array, ...], slope: Array) -> Array:
    """Returns infinity, of the sign of the other numbers' product, at the 0, and 0 elsewhere."""
    (x,) = given
    signs = np.prod(np.where(x == 0, 1, np.sign(x)), -1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.where(x == 0, signs * np.inf, np.float32(0)).astype(np.float32)


SLOPES: Final = {slope.name: slope for slope in _slopes()}


@functools.cache
def _wanted(name: str) -> list[Array]:
    """Returns the right gradients of a slope, which are computed once for both ways."""
    slope = SLOPES[name]
    numbers = tuple(range(len(slope.inputs)))
    gradients = jax.grad(lambda *a: jnp.sum(slope.reference(*a)), argnums=numbers)(*slope.inputs)
    arrays = [np.asarray(gradient) for gradient in gradients]
    if slope.instead is None:
        return arrays
    return [slope.instead(i, slope.inputs, array) for i, array in enumerate(arrays)]


def _by_compile_dag(slope: Slope) -> list[Array]:
    ctx = EagerExecutionContext()
    loss = lambda c, *tensors: c.ops.sum(slope.fn(c.ops, *tensors))  # noqa: E731
    _, gradients = value_and_gradient(loss, tuple(range(len(slope.inputs))))(ctx, *map(ctx.constant, slope.inputs))
    return [gradient.numpy() for gradient in gradients]


def _by_jax(slope: Slope) -> list[Array]:
    def loss(*arrays: Any) -> Any:
        ctx = JaxExecutionContext()
        total = ctx.ops.sum(slope.fn(ctx.ops, *map(ctx.tensor, arrays)))
        return arrays_of((total,))[0]

    gradients = jax.jit(jax.grad(loss, argnums=tuple(range(len(slope.inputs)))))(*slope.inputs)
    return [np.asarray(gradient) for gradient in gradients]


@pytest.mark.parametrize("by", [_by_compile_dag, _by_jax], ids=["compile_dag", "jax_context"])
@pytest.mark.parametrize("name", SLOPES)
def test_gradients_at_special_values(name: str, by: Callable[[Slope], list[Array]]) -> None:
    slope = SLOPES[name]
    for gradient, wanted in zip(by(slope), _wanted(name), strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=2e-6, err_msg=name)
