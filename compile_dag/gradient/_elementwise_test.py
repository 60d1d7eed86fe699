import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compile_dag.gradient import value_and_gradient
from compile_dag.gradient._checks import check, gradients, normal, weights_for
from lang_core import EagerExecutionContext, TensorSpec, as_dtype

_SHAPES = [((2, 1, 4), (3, 1)), ((), (5,)), ((0, 3), (3,))]


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.abs(normal(*shape, seed=seed)) + 0.3


@pytest.mark.parametrize("shapes", _SHAPES)
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("add", jnp.add),
        ("sub", jnp.subtract),
        ("mul", jnp.multiply),
        ("div", jnp.divide),
        ("maximum", jnp.maximum),
        ("minimum", jnp.minimum),
        ("rem", jnp.fmod),
    ],
)
def test_two_operands(name, reference, shapes) -> None:
    x, y = normal(*shapes[0]), normal(*shapes[1], seed=1)
    y = y + np.sign(y) * 0.3
    check(lambda ctx, x, y: getattr(ctx.ops, name)(x, y), reference, x, y)


@pytest.mark.parametrize("shapes", _SHAPES)
def test_pow(shapes) -> None:
    check(lambda ctx, x, y: ctx.ops.pow(x, y), jnp.power, positive(*shapes[0]), normal(*shapes[1], seed=1))


def test_pow_at_zero() -> None:
    """Computes the power as jax does, but for 0 to the power 0, where jax's gradient is NaN."""
    x, y = np.array([0.0, 0.0, 0.0, 2.0, -2.0, 0.0]), np.array([0.0, 2.0, 1.0, 0.0, 2.0, 3.0])
    _, (of_x, of_y) = value_and_gradient(lambda ctx, x, y: ctx.ops.sum(ctx.ops.pow(x, y)), (0, 1))(
        EagerExecutionContext(), *map(EagerExecutionContext().constant, (x, y))
    )
    np.testing.assert_array_equal(of_x.numpy(), [0, 0, 1, 0, -4, 0])
    np.testing.assert_allclose(of_y.numpy(), [0, 0, 0, np.log(2), np.nan, 0])


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("negate", jnp.negative),
        ("abs", jnp.abs),
        ("exp", jnp.exp),
        ("expm1", jnp.expm1),
        ("tanh", jnp.tanh),
        ("logistic", jax.nn.sigmoid),
        ("erf", jax.scipy.special.erf),
        ("sin", jnp.sin),
        ("cos", jnp.cos),
    ],
)
def test_one_operand(name, reference) -> None:
    check(lambda ctx, x: getattr(ctx.ops, name)(x), reference, normal(3, 5))


@pytest.mark.parametrize(
    ("name", "reference"),
    [("log", jnp.log), ("log1p", jnp.log1p), ("sqrt", jnp.sqrt), ("rsqrt", jax.lax.rsqrt)],
)
def test_one_positive_operand(name, reference) -> None:
    check(lambda ctx, x: getattr(ctx.ops, name)(x), reference, positive(3, 5))


def test_the_slope_of_logistic_far_from_zero() -> None:
    """It is that of exp(-|x|), on both sides alike; 1 - y would lose it."""
    x = np.array([-800.0, -40.0, -30.0, 30.0, 40.0])
    (slope,) = gradients(lambda ctx, x: ctx.ops.logistic(x), [x])
    wanted = np.exp(-np.abs(x)) * weights_for(TensorSpec((5,), "f64"), 0)
    np.testing.assert_allclose(slope, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "sign"])
def test_step_functions_have_no_slope(name) -> None:
    (slope,) = gradients(lambda ctx, x: ctx.ops.add(getattr(ctx.ops, name)(x), ctx.ops.mul(x, 0.0)), [normal(3, 4)])
    np.testing.assert_array_equal(slope, 0)
    (slope,) = gradients(lambda ctx, x: getattr(ctx.ops, name)(x), [normal(3, 4)])
    np.testing.assert_array_equal(slope, 0)


@pytest.mark.parametrize(("name", "reference"), [("maximum", jnp.maximum), ("minimum", jnp.minimum)])
def test_of_equal_operands_each_gets_half(name, reference) -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])
    check(lambda ctx, x, y: getattr(ctx.ops, name)(x, y), reference, x, y, differences=False)


def test_select() -> None:
    pred = normal(3, 1) > 0

    def fn(ctx, x, y):
        return ctx.ops.select(ctx.ops.constant(pred), x, y)

    check(fn, lambda x, y: jnp.where(pred, x, y), normal(4), normal(3, 4, seed=1))


def test_select_hides_what_was_not_chosen() -> None:
    """The usual safe root: select outside and inside."""

    def fn(ctx, x):
        safe = ctx.ops.greater(x, 0.0)
        return ctx.ops.select(safe, ctx.ops.sqrt(ctx.ops.select(safe, x, 1.0)), 0.0)

    (slope,) = gradients(fn, [np.array([-1.0, 0.0, 4.0])])
    assert np.isfinite(slope).all()
    assert slope[0] == slope[1] == 0


def test_clamp_is_jax_lax_clamp() -> None:
    x = np.array([-2.0, -1.0, 0.5, 1.0, 3.0])
    low, high = np.full(5, -1.0), np.array([1.0, 1.0, 0.25, 1.0, 2.0])
    check(
        lambda ctx, x, low, high: ctx.ops.clamp(x, low, high),
        lambda x, low, high: jax.lax.clamp(low, x, high),
        x,
        low,
        high,
        differences=False,
    )
    check(lambda ctx, x: ctx.ops.clamp(x, -0.5, 0.7), lambda x: jax.lax.clamp(-0.5, x, 0.7), normal(3, 4))


def test_casts_and_promotion() -> None:
    def fn(ctx, x, y):
        return ctx.ops.mul(ctx.ops.cast(x, "f64"), ctx.ops.add(y, x))

    x, y = normal(3, 4, dtype=np.float32), normal(4)
    check(fn, lambda x, y: x.astype(jnp.float64) * (y + x), x, y, rtol=1e-6, differences=False)


def test_a_cast_to_an_integer_ends_the_way() -> None:
    x = normal(4) * 5
    (slope,) = gradients(lambda ctx, x: ctx.ops.mul(ctx.ops.cast(ctx.ops.cast(x, "i32"), "f64"), x), [x])
    np.testing.assert_allclose(slope, np.trunc(x) * weights_for(TensorSpec((4,), "f64"), 0))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sixteen_bits_are_rounded_once(dtype) -> None:
    """d tanh in f32, rounded: within half a unit in the last place of the exact slope."""
    x = np.linspace(-2, 2, 41).astype(dtype)
    (slope,) = gradients(lambda ctx, x: ctx.ops.tanh(x), [x])
    y = np.tanh(x.astype(np.float64)).astype(dtype).astype(np.float64)
    wanted = weights_for(TensorSpec((41,), as_dtype(np.dtype(dtype))), 0).astype(np.float64) * (1 - y * y)
    eps = 2.0**-11 if dtype is np.float16 else 2.0**-8
    np.testing.assert_allclose(slope.astype(np.float64), wanted, rtol=1.01 * eps, atol=1e-4)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.data())
def test_any_broadcast(data) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), max_size=4))
    shapes = []
    for _ in range(3):
        cut = data.draw(st.integers(0, len(shape)))
        shapes.append([data.draw(st.sampled_from([1, dim])) for dim in shape[cut:]])
    x, y, z = (normal(*s, seed=i) for i, s in enumerate(shapes))
    check(lambda ctx, x, y, z: ctx.ops.mul(ctx.ops.sub(x, y), z), lambda x, y, z: (x - y) * z, x, y, z)
