"""Arrays of NumPy and JAX become tensors of JAX at the door of a module, also where JAX traces."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lang_core import ExecutionContext, Module, OperatorError, Parameter, Tensor
from run_jax import JaxExecutionContext, JaxTensor

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Doubled(Module):
    """x + x, by NumPy where there is data."""

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Any:
        assert isinstance(x, JaxTensor)
        return ctx.ops.add(x, x) if ctx.isRecording else x.numpy() * np.float32(2)


class Scaled(Module):
    def __init__(self) -> None:
        self.weight = Parameter((3,))

    def forward(self, ctx: ExecutionContext, x: Any) -> Any:
        return x * ctx.parameter(self.weight)


@pytest.mark.parametrize("x", [X, jnp.asarray(X), JaxExecutionContext().constant(X)], ids=["numpy", "jax", "tensor"])
def test_arrays_become_tensors(x: Any) -> None:
    ctx = JaxExecutionContext()
    y = Doubled()(ctx, x)
    assert isinstance(y, JaxTensor)
    assert y.numpy().tolist() == (2 * X).tolist()
    traced = jax.jit(lambda x: Doubled()(ctx, x))(x)
    assert traced.numpy().tolist() == (2 * X).tolist()


def test_operators_are_refused_and_name_the_op() -> None:
    ctx = JaxExecutionContext({"weight": np.ones(3, np.float32)})
    for x in (X, jnp.asarray(X)):
        with pytest.raises(OperatorError, match=r"use ctx\.ops\.mul\(x, y\)"):
            Scaled()(ctx, x)
        with pytest.raises(OperatorError, match=r"use ctx\.ops\.mul\(x, y\)"):
            jax.jit(lambda x: Scaled()(ctx, x).data)(x)


def test_arrays_of_dtypes_that_jax_does_not_compute_in_stay_as_they_are() -> None:
    ctx = JaxExecutionContext()
    for array in (X.astype(np.float64), np.array(["text"]), np.ones(2, np.uint16)):
        assert ctx.admit(array) is array
