import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lang_core import bf16
from transformer_core.layers._norm import GatedRMSNorm, LayerNorm, RMSNorm
from transformer_core.layers._weights_testing import context_of

SIZES = st.integers(1, 9)


@given(SIZES, SIZES, st.sampled_from([1e-6, 1e-3]))
def test_rms_norm(rows, size, eps):
    norm = RMSNorm(size, eps=eps)
    ctx = context_of(norm)
    x = np.random.default_rng([rows, size]).standard_normal((rows, size))
    expected = ctx.parameter(norm.weight).numpy() * x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
    np.testing.assert_allclose(norm(ctx, x.astype(np.float32)).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_zero_centred_weights_are_multiplied_before_rounding():
    plain, centred = RMSNorm(6, dtype="bf16"), RMSNorm(6, zero_centred=True, dtype="bf16")
    ctx = context_of(plain)
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(bf16.numpy)
    wide, weight = x.astype(np.float64), ctx.parameter(plain.weight).numpy().astype(np.float64)
    exact = (1 + weight) * wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_array_equal(centred(ctx, x).numpy(), exact.astype(np.float32).astype(bf16.numpy))


@given(SIZES, SIZES)
def test_gated_rms_norm(rows, size):
    norm = GatedRMSNorm(size, eps=1e-3)
    ctx = context_of(norm)
    x, gate = np.random.default_rng([rows, size]).standard_normal((2, rows, size))
    expected = ctx.parameter(norm.weight).numpy() * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3)
    actual = norm(ctx, x.astype(np.float32), gate.astype(np.float32)).numpy()
    np.testing.assert_allclose(actual, expected * gate / (1 + np.exp(-gate)), rtol=1e-5, atol=1e-6)


@given(SIZES, st.integers(2, 9), st.booleans())
def test_layer_norm(rows, size, bias):
    norm = LayerNorm(size, eps=1e-2, bias=bias)
    ctx = context_of(norm)
    x = np.random.default_rng([rows, size]).standard_normal((rows, size))
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-2)
    expected = expected * ctx.parameter(norm.weight).numpy()
    if norm.bias is not None:
        expected = expected + ctx.parameter(norm.bias).numpy()
    np.testing.assert_allclose(norm(ctx, x.astype(np.float32)).numpy(), expected, rtol=1e-5, atol=1e-5)


def test_bf16_is_normed_in_f32_and_rounded_before_the_weight():
    norm = RMSNorm(64, dtype="bf16")
    ctx = context_of(norm)
    x = ctx.ops.cast(np.random.default_rng(0).standard_normal((3, 64), np.float32), "bf16")
    wide = x.numpy().astype(np.float32)
    normed = ctx.ops.cast((wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6)).astype(np.float32), "bf16")
    expected = ctx.ops.mul(ctx.parameter(norm.weight), normed).numpy().astype(np.float32)
    actual = norm(ctx, x)
    assert actual.dtype.name == "bf16"
    np.testing.assert_allclose(actual.numpy().astype(np.float32), expected, rtol=2**-7)
