import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_core.layers._convolution import CausalConv, Conv1d
from transformer_core.layers._weights_testing import RandomWeights, context_of


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


def test_channels_in_groups_are_convolved_by_weights_in_parts():
    """The weight has all of part 0, all of part 1, ...; x has part 0, 1, ... of group after group."""
    groups, parts = 3, (2, 1, 4)
    in_parts = CausalConv(21, 3, bias=True, groups=groups, parts=parts)
    plain = CausalConv(21, 3, bias=True)
    ctx = context_of(in_parts)
    begins = np.cumsum((0, *parts))[:-1] * groups
    order = np.concatenate(
        [
            begin + group * size + np.arange(size)
            for group in range(groups)
            for begin, size in zip(begins, parts, strict=False)
        ]
    )
    x = np.random.default_rng(1).standard_normal((2, 5, 21)).astype(np.float32)
    weights = {path: ctx.constant(ctx.parameter(part).numpy()[order]) for path, part in in_parts.named_parameters()}
    y, state = in_parts(ctx, ctx.constant(x))
    with ctx.parameters_from(weights):
        expected, kept = plain(ctx, ctx.constant(x))
    np.testing.assert_array_equal(y.numpy(), expected.numpy())
    np.testing.assert_array_equal(state.numpy(), kept.numpy())
