import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import OpError, as_dtype, bf16, f32
from lang_core.ops._samples_testing import DRAWN, OPS_NOW, SEEDS


def _reference(x, weight, bias, state):
    """Each output of each channel by numpy.convolve, in f64."""
    whole = np.concatenate([state, x], 1).astype(np.float64)
    y = np.stack(
        [
            [np.convolve(sequence, taps[::-1], "valid") for sequence, taps in zip(row.T, weight, strict=True)]
            for row in whole
        ]
    )
    return y.swapaxes(1, 2) + bias


@given(
    seed=SEEDS,
    batch=st.integers(1, 2),
    tokens=st.integers(1, 7),
    channels=st.integers(1, 5),
    taps=st.integers(1, 5),
    has_bias=st.booleans(),
    has_state=st.booleans(),
    dtype=st.sampled_from(("f32", "bf16", "f64")),
)
@DRAWN
def test_it_is_numpys_convolution_and_hands_its_state_on(
    seed, batch, tokens, channels, taps, has_bias, has_state, dtype
):
    random = np.random.default_rng(seed)
    kind = as_dtype(dtype).numpy
    x, weight, bias, state = (
        random.standard_normal(shape).astype(kind)
        for shape in ((batch, tokens, channels), (channels, taps), (channels,), (batch, taps - 1, channels))
    )
    kept = state.copy()
    actual, after = OPS_NOW.causal_conv(x, weight, bias if has_bias else None, state if has_state else None)
    given_state = state if has_state else np.zeros_like(state)
    exact = _reference(x, weight.astype(np.float64), bias.astype(np.float64) if has_bias else 0.0, given_state)
    error = {"f32": 1e-6, "bf16": 2**-8, "f64": 1e-14}[dtype]
    np.testing.assert_allclose(actual.numpy().astype(np.float64), exact, rtol=error, atol=min(error, 1e-6))
    assert actual.dtype is after.dtype is as_dtype(dtype)
    np.testing.assert_array_equal(after.numpy(), np.concatenate([given_state, x], 1)[:, tokens:])
    np.testing.assert_array_equal(state, kept)


def test_tokens_that_do_not_count_leave_the_state_alone():
    x = np.random.default_rng(0).standard_normal((2, 6, 3)).astype(np.float32)
    weight = np.ones((3, 4), np.float32)
    for count in (1, 2, 5, 6):
        y, after = OPS_NOW.causal_conv(x, weight, count=OPS_NOW.constant(count))
        wanted, state = OPS_NOW.causal_conv(x[:, :count], weight)
        np.testing.assert_array_equal(y.numpy()[:, :count], wanted.numpy())
        np.testing.assert_array_equal(after.numpy(), state.numpy())


@pytest.mark.parametrize(
    ("x", "weight", "bias", "state"),
    [
        ((2, 6), (3, 4), None, None),
        ((2, 6, 3), (4, 3), None, None),
        ((2, 6, 3), (3, 1, 4), None, None),
        ((2, 6, 3), (3, 0), None, None),
        ((2, 6, 3), (3, 4), (4,), None),
        ((2, 6, 3), (3, 4), None, (2, 4, 3)),
    ],
)
def test_operands_that_do_not_fit_are_refused(x, weight, bias, state):
    arrays = [None if shape is None else np.ones(shape, np.float32) for shape in (x, weight, bias, state)]
    with pytest.raises(OpError, match=r"causal_conv of shapes \(2, 6.*: wanted x \[B,T,C\], weight \[C,W\]"):
        OPS_NOW.causal_conv(*arrays)


def test_a_state_of_another_dtype_is_cast():
    y, after = OPS_NOW.causal_conv(
        np.ones((1, 2, 3), bf16.numpy), np.ones((3, 3), np.float32), state=np.ones((1, 2, 3), np.float32)
    )
    assert (y.dtype, after.dtype) == (bf16, bf16)
    assert OPS_NOW.causal_conv(np.ones((1, 2, 3), np.float32), np.ones((3, 3), bf16.numpy))[0].dtype is f32
