import jax.numpy as jnp
import numpy as np
import pytest

from compile_dag.gradient._checks import check, gradients, normal


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
@pytest.mark.parametrize(
    ("name", "reference"), [("sum", jnp.sum), ("prod", jnp.prod), ("max", jnp.max), ("min", jnp.min)]
)
def test_reductions(name, reference, axis, keepdims) -> None:
    check(
        lambda ctx, x: getattr(ctx.ops, name)(x, axis, keepdims),
        lambda x: reference(x, axis=axis, keepdims=keepdims),
        normal(2, 3, 4),
    )


@pytest.mark.parametrize(("name", "reference"), [("max", jnp.max), ("min", jnp.min)])
def test_ties_share_evenly(name, reference) -> None:
    x = np.array([[1.0, 3.0, 3.0, 1.0], [1.0, 1.0, 2.0, 5.0]])
    check(lambda ctx, x: getattr(ctx.ops, name)(x, 1), lambda x: reference(x, 1), x, differences=False)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_products_with_zeros(size: int, zeros: int) -> None:
    x = normal(2, size)
    x[0, :zeros] = 0
    check(lambda ctx, x: ctx.ops.prod(x, 1), lambda x: jnp.prod(x, 1), x)


def test_reductions_of_nothing() -> None:
    for name in ("sum", "prod"):
        (slope,) = gradients(lambda ctx, x, name=name: getattr(ctx.ops, name)(x, 1), [normal(2, 0)])
        assert slope.shape == (2, 0)
        check(lambda ctx, x, name=name: getattr(ctx.ops, name)(x, ()), lambda x: x, normal(2, 3))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumsum(axis: int) -> None:
    check(lambda ctx, x: ctx.ops.cumsum(x, axis), lambda x: jnp.cumsum(x, axis), normal(2, 3, 4))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_sort(axis: int, descending: bool) -> None:
    check(
        lambda ctx, x: ctx.ops.sort(x, axis, descending),
        lambda x: jnp.sort(x, axis, descending=descending),
        normal(4, 5),
    )


def test_top_k() -> None:
    check(lambda ctx, x: ctx.ops.top_k(x, 2), lambda x: jnp.flip(jnp.sort(x, -1), -1)[..., :2], normal(3, 5))


def test_order_by_the_indices_of_a_sort_alone_has_no_slope() -> None:
    (slope,) = gradients(lambda ctx, x: ctx.ops.cast(ctx.ops.sort(x)[1], "f64"), [normal(3)])
    np.testing.assert_array_equal(slope, 0)


def test_mean_in_sixteen_bits() -> None:
    x = normal(3, 64).astype(np.float16)
    (slope,) = gradients(lambda ctx, x: ctx.ops.mean(x, -1), [x])
    assert slope.dtype == np.float16
    np.testing.assert_array_equal(slope, np.broadcast_to(slope[:, :1], slope.shape))
