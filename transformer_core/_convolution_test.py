import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_core._convolution import Conv1d
from transformer_core._weights_testing import RandomWeights, context_of


@pytest.mark.parametrize(("stride", "padding", "length"), [(1, 1, 7), (2, 1, 10), (2, 0, 9)])
def test_as_jax_convolves(stride, padding, length):
    layer = Conv1d(4, 6, 3, stride=stride, padding=padding)
    x = np.random.default_rng(0).standard_normal((2, length, 4)).astype(np.float32)
    ctx, weights = context_of(layer), RandomWeights(layer)
    channels_first, weight = jnp.asarray(x.transpose(0, 2, 1)), jnp.asarray(weights.read("weight"))
    expected = jax.lax.conv_general_dilated(channels_first, weight, (stride,), [(padding,) * 2])
    expected = np.asarray(expected).transpose(0, 2, 1) + weights.read("bias")
    np.testing.assert_allclose(layer(ctx, ctx.constant(x)).numpy(), expected, rtol=1e-5, atol=1e-5)


def test_without_a_bias():
    assert [path for path, _ in Conv1d(2, 3, 5, bias=False).named_parameters()] == ["weight"]
