from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import DType, as_dtype, bf16, f16, f32
from lang_core.ops._samples_testing import (
    DRAWN,
    FLOATING,
    INTEGERS,
    NUMBERS,
    OPS_NOW,
    SEEDS,
    SHAPES,
    assert_close,
    assert_same,
    generator,
    special_values,
    values,
)

ANY_NUMBER = st.sampled_from(NUMBERS)


def _some_axes(rng: np.random.Generator, ndim: int) -> tuple[int, ...]:
    return tuple(int(axis) for axis in rng.permutation(ndim)[: rng.integers(0, ndim + 1)])


def _widened(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x.astype(np.float64) if as_dtype(x.dtype).is_floating else x


@pytest.mark.parametrize(("name", "reference"), [("sum", np.sum), ("prod", np.prod)])
@given(shape=SHAPES, dtype=ANY_NUMBER, seed=SEEDS)
@DRAWN
def test_sum_and_prod(
    name: str, reference: Callable[..., Any], shape: tuple[int, ...], dtype: DType, seed: int
) -> None:
    rng = generator(seed)
    x = values(rng, shape, dtype)
    axes, keepdims = _some_axes(rng, len(shape)), bool(rng.integers(0, 2))
    wide = _widened(x)
    with np.errstate(over="ignore"):
        wanted = reference(wide, axis=axes, keepdims=keepdims, dtype=wide.dtype).astype(dtype.numpy)
    assert_close(getattr(OPS_NOW, name)(x, axes, keepdims), wanted, ulps=16)


@pytest.mark.parametrize(("name", "reference"), [("max", jnp.max), ("min", jnp.min)])
@pytest.mark.parametrize("dtype", NUMBERS, ids=repr)
def test_max_and_min_equal_jax_with_nan(name: str, reference: Callable[..., Any], dtype: DType) -> None:
    x = values(generator(11), (7, 2, 5), dtype, special=True)
    for axes in ((0,), (0, 2), (1,), ()):
        with jax.enable_x64(True):
            wanted = np.asarray(reference(jnp.asarray(x), axis=axes))
        actual = getattr(OPS_NOW, name)(x, axes)
        assert_same(OPS_NOW.add(actual, 0), wanted + np.zeros((), dtype.numpy))  # of 0.0 and -0.0 either is right


@pytest.mark.parametrize(("name", "reference"), [("any", np.any), ("all", np.all)])
@given(shape=SHAPES, seed=SEEDS)
@DRAWN
def test_any_and_all(name: str, reference: Callable[..., Any], shape: tuple[int, ...], seed: int) -> None:
    rng = generator(seed)
    x = np.asarray(rng.random(shape) < 0.7)
    axes, keepdims = _some_axes(rng, len(shape)), bool(rng.integers(0, 2))
    assert_same(getattr(OPS_NOW, name)(x, axes, keepdims), reference(x, axis=axes, keepdims=keepdims))
    assert_same(getattr(OPS_NOW, name)(x), reference(x))


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_integer_reductions_wrap_in_their_own_dtype(dtype: DType) -> None:
    top = np.full((3, 2), np.iinfo(dtype.numpy).max, dtype.numpy)
    with jax.enable_x64(True):
        jax_sum = np.asarray(jax.lax.reduce(jnp.asarray(top), np.zeros((), dtype.numpy), jax.lax.add, (0,)))
        jax_prod = np.asarray(jax.lax.reduce(jnp.asarray(top), np.ones((), dtype.numpy), jax.lax.mul, (0,)))
    assert_same(OPS_NOW.sum(top, 0), jax_sum)
    assert_same(OPS_NOW.prod(top, 0), jax_prod)


@pytest.mark.parametrize("dtype", [f16, bf16], ids=repr)
def test_narrow_floats_accumulate_in_f32(dtype: DType) -> None:
    # In its own dtype the running sum would stop growing at 2^(bits + 1).
    x = np.ones(4096, dtype.numpy)
    assert OPS_NOW.sum(x).numpy() == 4096
    assert OPS_NOW.cumsum(x, 0).numpy()[-1] == 4096
    halves = np.full(40, 0.5, dtype.numpy)
    assert OPS_NOW.prod(np.concatenate([halves, 1 / halves])).numpy() == 1


@pytest.mark.parametrize(("name", "reference"), [("argmax", jax.lax.argmax), ("argmin", jax.lax.argmin)])
@pytest.mark.parametrize("dtype", NUMBERS, ids=repr)
def test_arg_reductions_equal_jax_with_ties_and_nan(name: str, reference: Callable[..., Any], dtype: DType) -> None:
    for special in (False, True):
        x = values(generator(5), (9, 4, 3), dtype, special)
        for axis in range(3):
            with jax.enable_x64(True):
                wanted = np.asarray(reference(jnp.asarray(x), axis, np.int32))
            assert_same(getattr(OPS_NOW, name)(x, axis), wanted)
            assert_same(getattr(OPS_NOW, name)(x, axis - 3, keepdims=True), np.expand_dims(wanted, axis))


def test_arg_reductions_take_the_first_of_equals_and_the_first_nan() -> None:
    x = np.array([1, 3, np.nan, 3, np.nan], np.float32)
    assert OPS_NOW.argmax(x, 0).numpy() == OPS_NOW.argmin(x, 0).numpy() == 2
    assert OPS_NOW.argmax(x[[0, 1, 3]], 0).numpy() == 1


@given(shape=SHAPES, dtype=ANY_NUMBER, seed=SEEDS)
@DRAWN
def test_cumsum(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x = values(rng, (*shape, 6), dtype)
    axis = int(rng.integers(-x.ndim, x.ndim))
    wide = _widened(x)
    assert_close(OPS_NOW.cumsum(x, axis), np.cumsum(wide, axis, dtype=wide.dtype).astype(dtype.numpy), ulps=4)


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_cumsum_wraps_as_jaxs(dtype: DType) -> None:
    x = special_values(dtype)
    with jax.enable_x64(True):
        wanted = np.asarray(jax.lax.cumsum(jnp.asarray(x)))
    assert_same(OPS_NOW.cumsum(x, 0), wanted)


@pytest.mark.parametrize("dtype", NUMBERS, ids=repr)
@pytest.mark.parametrize("special", [False, True])
def test_sort_is_stable_with_nan_as_the_largest(dtype: DType, special: bool) -> None:
    x = values(generator(17), (6, 11, 2), dtype, special)
    for axis in range(3):
        positions = np.broadcast_to(
            np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(3)]), x.shape
        )
        with jax.enable_x64(True):
            operands = (jnp.asarray(x), jnp.asarray(positions.astype(np.int32)))
            wanted = [np.asarray(array) for array in jax.lax.sort(operands, dimension=axis, is_stable=True, num_keys=1)]
        for actual, reference in zip(OPS_NOW.sort(x, axis), wanted, strict=True):
            assert_same(actual, reference)


@given(shape=SHAPES, dtype=ANY_NUMBER, seed=SEEDS)
@DRAWN
def test_descending_sort_is_stable_with_nan_first(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    x = values(generator(seed), (*shape, 7), dtype, special=True)
    actual, indices = OPS_NOW.sort(x, descending=True)
    with jax.enable_x64(True):
        keys = jnp.asarray(x.astype(np.float64) if dtype.is_floating else x.astype(np.int64))
    for place in np.ndindex(x.shape[:-1]):
        row = np.asarray(keys)[place]
        order = sorted(range(7), key=lambda i, row=row: (not np.isnan(row[i]), -row[i].item(), i))
        assert indices.numpy()[place].tolist() == order
    assert_same(actual, np.take_along_axis(x, indices.numpy(), -1))


@pytest.mark.parametrize("dtype", FLOATING, ids=repr)
def test_top_k_equals_jax_with_ties_and_nan(dtype: DType) -> None:
    for special in (False, True):
        x = values(generator(23), (4, 13), dtype, special)
        with jax.enable_x64(True):
            wanted = [np.asarray(array) for array in jax.lax.top_k(jnp.asarray(x + np.zeros((), dtype.numpy)), 5)]
        values_found, indices = OPS_NOW.top_k(x, 5)
        assert_same(OPS_NOW.add(values_found, 0.0), wanted[0])
        assert_same(indices, wanted[1])


def test_top_k_along_another_axis_and_of_everything() -> None:
    x = np.array([[1, 5], [4, 2], [3, 3]], np.int32)
    assert OPS_NOW.top_k(x, 2, axis=0)[0].numpy().tolist() == [[4, 5], [3, 3]]
    assert OPS_NOW.top_k(x, 0)[1].shape == (3, 0)
    assert OPS_NOW.top_k(x, 2)[1].numpy().tolist() == [[1, 0], [0, 1], [0, 1]]


def test_reductions_without_axes_and_of_nothing() -> None:
    assert_same(OPS_NOW.sum(np.zeros((0, 3), np.float32), 0), np.zeros(3, np.float32))
    assert_same(OPS_NOW.prod(np.zeros((2, 0), np.int8), 1), np.ones(2, np.int8))
    assert OPS_NOW.max(np.array(3.0, np.float32)).dtype is f32
    assert OPS_NOW.sort(np.zeros((0, 2), np.float32), 0)[0].shape == (0, 2)
