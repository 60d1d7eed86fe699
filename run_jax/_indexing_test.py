"""Gradients of ops that write at run-time positions, against those of compile_dag and of finite differences."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compile_dag.gradient import value_and_gradient
from lang_core import EagerExecutionContext
from run_jax import JaxExecutionContext, arrays_of

_INDICES = np.array([[0, 2, 0, 7], [1, 1, -1, 0]], np.int32)  # twice the same place, and outside of x
_X = np.array([[2.0, 3.0, 5.0], [7.0, -1.0, 4.0]], np.float32)
_UPDATES = {
    "plain": np.array([[2.0, 3.0, -4.0, 5.0], [0.5, 6.0, 7.0, 8.0]], np.float32),
    "one zero": np.array([[0.0, 3.0, -4.0, 5.0], [0.5, 0.0, 7.0, 8.0]], np.float32),
    "two zeros": np.array([[0.0, 3.0, 0.0, 5.0], [0.0, 0.0, 7.0, -0.0]], np.float32),
}


def _loss(ctx: Any, x: Any, updates: Any, reduction: str) -> Any:
    scattered = ctx.ops.scatter(x, ctx.constant(_INDICES), updates, 1, reduction)
    return ctx.ops.sum(ctx.ops.mul(scattered, ctx.constant(np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], np.float32))))


def _slopes(reduction: str, updates: np.ndarray) -> tuple[Any, Any]:
    def loss(x: Any, updates: Any) -> Any:
        return _loss(ctx, ctx.tensor(x), ctx.tensor(updates), reduction).data

    ctx = JaxExecutionContext()
    return jax.jit(jax.grad(loss, argnums=(0, 1)))(jnp.asarray(_X), jnp.asarray(updates))


@pytest.mark.parametrize("name", _UPDATES)
@pytest.mark.parametrize("reduction", ["add", "mul"])
def test_the_gradient_of_a_scatter_is_that_of_its_graph(reduction: str, name: str) -> None:
    updates = _UPDATES[name]
    ctx = EagerExecutionContext()
    function = value_and_gradient(lambda ctx, x, u: _loss(ctx, x, u, reduction), [0, 1])
    _, wanted = function(ctx, ctx.constant(_X), ctx.constant(updates))
    for ours, theirs in zip(_slopes(reduction, updates), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", _UPDATES)
def test_the_gradient_of_a_product_is_its_slope(name: str) -> None:
    """The loss is linear in each element alone, so differences are exact."""
    ctx, updates = EagerExecutionContext(), _UPDATES[name]
    for number, slopes in enumerate(_slopes("mul", updates)):
        base = (_X, updates)[number].astype(np.float64)
        for place in np.ndindex(base.shape):
            values = []
            for step in (1.0, -1.0):
                moved: Any = base.copy()
                moved[place] += step
                arguments: list[Any] = [np.float64(_X), np.float64(updates)]
                arguments[number] = moved
                result = ctx.ops.scatter(arguments[0], _INDICES, ctx.constant(arguments[1]), 1, "mul").numpy()
                values.append((result * np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])).sum())
            np.testing.assert_allclose(slopes[place], (values[0] - values[1]) / 2, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", _UPDATES)
@pytest.mark.parametrize("reduction", ["set", "add", "mul", "max", "min"])
def test_forward_and_reverse_mode_agree(reduction: str, name: str) -> None:
    def scattered(x: Any, updates: Any) -> Any:
        tensors = ctx.tensor(x), ctx.constant(_INDICES[:, 1:]), ctx.tensor(updates)
        return arrays_of(ctx.ops.scatter(*tensors, 1, reduction))

    ctx, arrays = JaxExecutionContext(), (jnp.asarray(_X), jnp.asarray(_UPDATES[name][:, 1:]))
    ours, theirs = (mode(scattered, argnums=(0, 1))(*arrays) for mode in (jax.jacfwd, jax.jacrev))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    product, tangent = jax.jit(lambda *arrays: jax.jvp(scattered, arrays, arrays))(*arrays)
    np.testing.assert_array_equal(product, scattered(*arrays))
    assert np.isfinite(tangent).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_other_dtypes_are_multiplied_as_numpy_does(dtype: str) -> None:
    x, updates = _X.astype(dtype), _UPDATES["plain"].astype(dtype)
    eager, ctx = EagerExecutionContext(), JaxExecutionContext()
    wanted = eager.ops.scatter(eager.constant(x), _INDICES, eager.constant(updates), 1, "mul").numpy()
    result = ctx.ops.scatter(ctx.constant(x), _INDICES, ctx.constant(updates), 1, "mul").numpy()
    np.testing.assert_allclose(result.astype(np.float32), wanted.astype(np.float32), rtol=1e-2)
