import jax
import numpy as np
import pytest

from transformer_core._embedding import Embedding
from transformer_core._feed_forward import SwiGLU
from transformer_core._linear import Linear
from transformer_core._weights_for_tests import context_of


@pytest.mark.parametrize("bias", [False, True])
def test_linear(bias):
    linear = Linear(5, 3, bias=bias)
    ctx = context_of(linear)
    x = np.random.default_rng(0).standard_normal((2, 4, 5), np.float32)
    expected = x @ ctx.parameter(linear.weight).numpy().T
    if linear.bias is not None:
        expected = expected + ctx.parameter(linear.bias).numpy()
    np.testing.assert_allclose(linear(ctx, x).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_embedding():
    embedding = Embedding(7, 3)
    ctx = context_of(embedding)
    ids = np.array([[6, 0], [2, 2]], np.int32)
    np.testing.assert_array_equal(embedding(ctx, ids).numpy(), ctx.parameter(embedding.weight).numpy()[ids])


@pytest.mark.parametrize("bias", [False, True])
def test_swiglu_agrees_with_jax(bias):
    layer = SwiGLU(6, 10, bias=bias)
    ctx = context_of(layer)
    x = np.random.default_rng(1).standard_normal((2, 3, 6), np.float32)

    def linear(part: Linear, x):
        product = x @ ctx.parameter(part.weight).numpy().T
        return product if part.bias is None else product + ctx.parameter(part.bias).numpy()

    expected = linear(layer.down_proj, jax.nn.silu(linear(layer.gate_proj, x)) * linear(layer.up_proj, x))
    np.testing.assert_allclose(layer(ctx, x).numpy(), expected, rtol=1e-4, atol=1e-5)
