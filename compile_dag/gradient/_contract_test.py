import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compile_dag.gradient._checks import check, normal


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.data())
def test_dot_general_over_any_axes(data) -> None:
    """Axes of both operands in any order: batch, contracted and free."""
    sizes = st.integers(1, 4)
    batch = [(f"b{i}", data.draw(sizes)) for i in range(data.draw(st.integers(0, 2)))]
    contract = [(f"c{i}", data.draw(sizes)) for i in range(data.draw(st.integers(0, 2)))]
    x_free = [(f"x{i}", data.draw(sizes)) for i in range(data.draw(st.integers(0, 2)))]
    y_free = [(f"y{i}", data.draw(sizes)) for i in range(data.draw(st.integers(0, 2)))]
    x_axes = data.draw(st.permutations(batch + contract + x_free))
    y_axes = data.draw(st.permutations(batch + contract + y_free))
    contracted = [x_axes.index(a) for a in contract], [y_axes.index(a) for a in contract]
    batched = [x_axes.index(a) for a in batch], [y_axes.index(a) for a in batch]
    check(
        lambda ctx, x, y: ctx.ops.dot_general(x, y, contracted, batched),
        lambda x, y: jax.lax.dot_general(x, y, (contracted, batched)),
        normal(*[dim for _, dim in x_axes]),
        normal(*[dim for _, dim in y_axes], seed=1),
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("result", [None, "f32"])
def test_dot_general_of_sixteen_bits(dtype, result) -> None:
    preferred = None if result is None else jnp.float32
    eps = 2.0**-10 if dtype is np.float16 else 2.0**-7
    check(
        lambda ctx, x, y: ctx.ops.dot_general(x, y, ((1,), (0,)), dtype=result),
        lambda x, y: jax.lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=preferred),
        normal(3, 5, dtype=dtype),
        normal(5, 4, seed=1, dtype=dtype),
        rtol=2 * eps,
        atol=2 * eps,
        differences=False,
    )


def test_linear() -> None:
    check(
        lambda ctx, x, w, b: ctx.ops.linear(x, w, b),
        lambda x, w, b: x @ w.T + b,
        normal(2, 3, 5),
        normal(4, 5, seed=1),
        normal(4, seed=2),
    )


def convolution(strides, padding, dilation, groups):
    def reference(x, kernel):
        letters = "DHW"[: x.ndim - 2]
        numbers = jax.lax.conv_dimension_numbers(
            x.shape, kernel.shape, (f"N{letters}C", f"{letters}IO", f"N{letters}C")
        )
        return jax.lax.conv_general_dilated(
            x, kernel, strides, padding, None, dilation, numbers, feature_group_count=groups
        )

    return lambda ctx, x, kernel: ctx.ops.conv(x, kernel, strides, padding, dilation, groups), reference


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.data())
def test_conv(data) -> None:
    spatial = data.draw(st.integers(1, 2))
    groups = data.draw(st.sampled_from([1, 2, 3]))
    inputs, outputs = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    taps = [data.draw(st.integers(1, 3)) for _ in range(spatial)]
    strides, dilation = ([data.draw(st.integers(1, 3)) for _ in range(spatial)] for _ in range(2))
    padding = [(data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))) for _ in range(spatial)]
    sizes = [data.draw(st.integers(d * (k - 1) + 1, 8)) for d, k in zip(dilation, taps, strict=True)]
    fn, reference = convolution(strides, padding, dilation, groups)
    x, kernel = normal(2, *sizes, groups * inputs), normal(*taps, inputs, groups * outputs, seed=1)
    check(fn, reference, x, kernel)


def test_a_causal_depthwise_convolution() -> None:
    fn, reference = convolution((1,), ((3, 0),), (1,), 5)
    check(fn, reference, normal(2, 7, 5), normal(4, 1, 5, seed=1))


def test_a_conv_with_nothing_to_do() -> None:
    fn, _ = convolution((1,), ((0, 0),), (1,), 1)
    check(fn, None, normal(2, 2, 3), normal(3, 3, 4, seed=1))
