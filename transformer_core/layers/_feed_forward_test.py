from functools import partial

import jax
import numpy as np
import pytest
from jax.scipy.stats import norm

from lang_core import ConfigError, EagerExecutionContext
from transformer_core.layers._embedding import Embedding
from transformer_core.layers._feed_forward import Activation, FeedForward, SwiGLU
from transformer_core.layers._linear import Linear
from transformer_core.layers._weights_testing import RandomWeights, context_of


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


JAX = {
    Activation.SILU: jax.nn.silu,
    Activation.GELU: partial(jax.nn.gelu, approximate=False),
    Activation.GELU_TANH: partial(jax.nn.gelu, approximate=True),
    Activation.RELU: jax.nn.relu,
    Activation.RELU_SQUARED: lambda x: jax.nn.relu(x) ** 2,
    Activation.QUICK_GELU: lambda x: x * jax.nn.sigmoid(1.702 * x),
}


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("bias", [False, True])
def test_swiglu_agrees_with_jax(bias, activation):
    layer = SwiGLU(6, 10, activation=activation, bias=bias)
    ctx = context_of(layer)
    x = np.random.default_rng(1).standard_normal((2, 3, 6), np.float32)

    def linear(part: Linear, x):
        product = x @ ctx.parameter(part.weight).numpy().T
        return product if part.bias is None else product + ctx.parameter(part.bias).numpy()

    expected = linear(layer.down_proj, JAX[activation](linear(layer.gate_proj, x)) * linear(layer.up_proj, x))
    np.testing.assert_allclose(layer(ctx, x).numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", Activation)
def test_feed_forward_agrees_with_jax(activation):
    layer = FeedForward(6, 10, activation=activation)
    ctx = context_of(layer)
    x = np.random.default_rng(2).standard_normal((2, 3, 6), np.float32)
    expected = layer.down_proj(ctx, np.asarray(JAX[activation](layer.up_proj(ctx, x).numpy())))
    np.testing.assert_allclose(layer(ctx, x).numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sparsity", [0.1, 0.5, 0.95])
def test_gates_below_a_quantile_are_zero(sparsity: float):
    layer = SwiGLU(5, 400, activation=Activation.RELU, sparsity=sparsity)
    weights, x = RandomWeights(layer), np.random.default_rng(5).standard_normal((2, 3, 5)).astype(np.float32)
    gate, up = (x @ weights.read(f"{name}_proj.weight").T for name in ("gate", "up"))
    gate = np.maximum(gate - gate.mean(-1, keepdims=True) - norm.ppf(sparsity) * gate.std(-1, keepdims=True), 0)
    actual = layer(EagerExecutionContext(weights), EagerExecutionContext().ops.constant(x)).numpy()
    np.testing.assert_allclose(actual, (gate * up) @ weights.read("down_proj.weight").T, rtol=1e-3, atol=1e-4)
    assert abs((gate == 0).mean() - sparsity) < 0.1


@pytest.mark.parametrize("sparsity", [-0.1, 1.0])
def test_a_share_of_gates_that_cannot_be(sparsity: float):
    with pytest.raises(ConfigError, match="sparsity of a feed-forward: expected a share of 0 or more, below 1; found"):
        SwiGLU(5, 7, sparsity=sparsity)
