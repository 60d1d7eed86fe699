import itertools
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import DType, as_dtype, bf16, f16, f32, f64, i8, i32, i64, u8
from lang_core.ops._samples_testing import (
    DRAWN,
    FLOATING,
    NUMBERS,
    OPS_NOW,
    SEEDS,
    assert_close,
    assert_same,
    generator,
    values,
)

DIMS = st.sampled_from((0, 1, 2, 3, 4))


@given(
    batch=st.lists(DIMS, max_size=2),
    contract=st.lists(DIMS, max_size=2),
    x_free=st.lists(DIMS, max_size=2),
    y_free=st.lists(DIMS, max_size=2),
    dtype=st.sampled_from(NUMBERS),
    seed=SEEDS,
)
@DRAWN
def test_dot_general_sums_products_in_any_order_of_axes(
    batch: list[int], contract: list[int], x_free: list[int], y_free: list[int], dtype: DType, seed: int
) -> None:
    rng = generator(seed)
    letters = ("ab"[: len(batch)], "cd"[: len(contract)], "ef"[: len(x_free)], "gh"[: len(y_free)])
    sizes = dict(zip("".join(letters), [*batch, *contract, *x_free, *y_free], strict=True))
    x_letters = "".join(rng.permutation(list(letters[0] + letters[1] + letters[2])))
    y_letters = "".join(rng.permutation(list(letters[0] + letters[1] + letters[3])))
    x, y = (values(rng, tuple(sizes[a] for a in axes), dtype) for axes in (x_letters, y_letters))
    axes = [tuple([side.index(a) for a in group] for side in (x_letters, y_letters)) for group in letters[:2]]
    wide = (np.float64 if dtype.is_floating else dtype.numpy,) * 2
    free = "".join(a for a in x_letters + y_letters if a in letters[2] + letters[3])
    formula = f"{x_letters},{y_letters}->{letters[0]}{free}"
    with np.errstate(all="ignore"):
        wanted = np.einsum(formula, x.astype(wide[0]), y.astype(wide[1])).astype(dtype.numpy)
    assert_close(OPS_NOW.dot_general(x, y, (axes[1][0], axes[1][1]), (axes[0][0], axes[0][1])), wanted, scale=100)


@pytest.mark.parametrize(
    ("dtype", "result"),
    [(i8, i32), (i8, i8), (u8, i32), (i32, i64), (f32, f32), (f32, f64), (f16, f32), (bf16, f32), (f64, f64)],
    ids=repr,
)
def test_dot_general_equals_jax(dtype: DType, result: DType) -> None:
    rng = generator(7)
    x, y = values(rng, (2, 5, 3, 4), dtype), values(rng, (4, 3, 6, 5), dtype)
    numbers = (((3, 1), (0, 3)), ((2,), (1,)))
    with jax.enable_x64(True):
        wanted = jax.lax.dot_general(jnp.asarray(x), jnp.asarray(y), numbers, preferred_element_type=result.numpy)
    assert wanted.shape == (3, 2, 6)
    assert_close(OPS_NOW.dot_general(x, y, *numbers, dtype=result), np.asarray(wanted), scale=100)
    assert_close(
        OPS_NOW.dot_general(x, y, ((-1, 1), (0, -1)), ((-2,), (-3,)), dtype=result.name), np.asarray(wanted), scale=100
    )


@pytest.mark.parametrize("dtype", [f16, bf16], ids=repr)
def test_narrow_products_are_rounded_once(dtype: DType) -> None:
    rng = generator(9)
    x, y = (rng.standard_normal((3, 600)).astype(dtype.numpy) for _ in range(2))
    exact = x.astype(np.float64) @ y.astype(np.float64).T
    assert_close(OPS_NOW.dot_general(x, y, ((1,), (1,))), exact.astype(dtype.numpy), ulps=1)
    np.testing.assert_allclose(
        OPS_NOW.dot_general(x, y, ((1,), (1,)), dtype="f32").numpy(), exact, rtol=1e-4, atol=1e-4
    )


def test_i8_products_wrap_in_i8_and_not_in_i32() -> None:
    x = np.full((1, 5), 100, np.int8)
    assert OPS_NOW.dot_general(x, x, ((1,), (1,)), dtype="i32").numpy().item() == 50000
    assert OPS_NOW.dot_general(x, x, ((1,), (1,))).numpy().item() == 80


def test_linear_multiplies_by_the_transposed_weight() -> None:
    rng = generator(1)
    x, weight, bias = values(rng, (2, 3, 4), f32), values(rng, (5, 4), f32), values(rng, (5,), f32)
    assert_close(OPS_NOW.linear(x, weight), x @ weight.T)
    assert_close(OPS_NOW.linear(x, weight, bias), x @ weight.T + bias)
    assert_close(OPS_NOW.linear(x[0, 0], weight, bias), weight @ x[0, 0] + bias)


def _jax_conv(x: Any, kernel: Any, strides: Any, padding: Any, dilation: Any, groups: int) -> Any:
    layout = {1: ("NHC", "HIO", "NHC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}[x.ndim - 2]
    with jax.enable_x64(True):
        return np.asarray(
            jax.lax.conv_general_dilated(
                jnp.asarray(x),
                jnp.asarray(kernel),
                strides,
                padding,
                rhs_dilation=dilation,
                dimension_numbers=layout,
                feature_group_count=groups,
                preferred_element_type=np.float64 if x.dtype == np.float64 else np.float32,
            )
        ).astype(x.dtype)


@pytest.mark.parametrize("dtype", FLOATING, ids=repr)
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_conv_equals_jax(dtype: DType, spatial: int) -> None:
    """In f32 each geometry has each number of groups; other dtypes have one in turn, with TAPELINE_LONG=1 all."""
    rng = generator(spatial)
    channels = ((1, 3, 4), (2, 3, 4), (6, 1, 12))
    geometries = ((1, 1, (0, 0)), (2, 1, (2, 1)), (1, 2, (1, 3)), (3, 2, (4, 0)))
    every = dtype is f32 or bool(os.environ.get("TAPELINE_LONG"))
    pairs = itertools.product(channels, geometries) if every else zip((*channels, channels[0]), geometries, strict=True)
    for (groups, per_group, outputs), (strides, dilation, pads) in pairs:
        x = values(rng, (2, *(9, 7, 8)[:spatial], groups * per_group), dtype)
        kernel = values(rng, (*(3, 2, 4)[:spatial], per_group, outputs), dtype)
        geometry = ((strides,) * spatial, (pads,) * spatial, (dilation,) * spatial, groups)
        assert_close(OPS_NOW.conv(x, kernel, *geometry), _jax_conv(x, kernel, *geometry), scale=1000)


def test_conv_of_what_the_kernel_does_not_fit_into_is_empty() -> None:
    x, kernel = np.ones((2, 3, 4)), np.ones((6, 4, 5))
    assert_same(OPS_NOW.conv(x, kernel), np.ones((2, 0, 5)))
    assert_same(OPS_NOW.conv(x, kernel, strides=(4,)), np.ones((2, 0, 5)))
    assert_same(OPS_NOW.conv(x[:0], kernel, padding=((3, 0),)), np.ones((0, 1, 5)))


def test_causal_depthwise_conv_looks_back_only() -> None:
    rng = generator(6)
    x, kernel = values(rng, (2, 9, 5), f32), values(rng, (4, 1, 5), f32)
    actual = OPS_NOW.conv(x, kernel, padding=((3, 0),), groups=5).numpy()
    wanted = np.zeros_like(x)
    for t in range(9):
        for back in range(min(t + 1, 4)):
            wanted[:, t] += x[:, t - back] * kernel[3 - back, 0]
    np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=1e-6)


def test_dot_general_of_numpy_arrays_names_a_table_dtype() -> None:
    assert OPS_NOW.dot_general(np.ones((2, 3)), np.ones((3, 4)), ((1,), (0,))).dtype is as_dtype("f64")
