from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import DTYPES, DType, OpError, bool_
from lang_core.ops._samples_testing import (
    CTX,
    DRAWN,
    NUMBERS,
    OPS_NOW,
    SEEDS,
    assert_close,
    assert_same,
    generator,
    values,
)

ANY_DTYPE = st.sampled_from(DTYPES)
FILLED = st.lists(st.integers(1, 5), max_size=4).map(tuple)
INDEX_DTYPES = (np.int32, np.int64)


def _starts(rng: np.random.Generator, ndim: int) -> list[Any]:
    dtype = INDEX_DTYPES[rng.integers(0, 2)]
    return [np.asarray(start, dtype) for start in rng.integers(-7, 8, ndim)]


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_dynamic_slices_clamp_as_jaxs(dtype: DType) -> None:
    rng = generator(2)
    x, update = values(rng, (4, 5, 3), dtype), values(rng, (2, 5, 1), dtype)
    for _ in range(12):
        starts = _starts(rng, 3)
        with jax.enable_x64(True):
            part = np.asarray(jax.lax.dynamic_slice(jnp.asarray(x), starts, (2, 5, 1), allow_negative_indices=False))
            whole = jax.lax.dynamic_update_slice(
                jnp.asarray(x), jnp.asarray(update), starts, allow_negative_indices=False
            )
        assert_same(OPS_NOW.dynamic_slice(x, starts, (2, 5, 1)), part)
        assert_same(OPS_NOW.dynamic_update_slice(x, update, starts), np.asarray(whole))


@given(shape=FILLED, dtype=ANY_DTYPE, seed=SEEDS)
@DRAWN
def test_dynamic_slices_stay_inside(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x, starts = values(rng, shape, dtype), _starts(rng, len(shape))
    sizes = [int(rng.integers(0, dim + 1)) for dim in shape]
    begin = [int(np.clip(s, 0, dim - n)) for s, dim, n in zip(starts, shape, sizes, strict=True)]
    where = tuple(slice(b, b + n) for b, n in zip(begin, sizes, strict=True))
    assert_same(OPS_NOW.dynamic_slice(x, starts, sizes), x[where])
    update, wanted = values(rng, tuple(sizes), dtype), x.copy()
    wanted[where] = update
    before = x.copy()
    assert_same(OPS_NOW.dynamic_update_slice(x, update, starts), wanted)
    np.testing.assert_array_equal(x, before)


def test_starts_may_be_numbers_beside_tensors_of_either_dtype() -> None:
    x = np.arange(12).reshape(3, 4)
    for start in (1, np.int64(1), np.array(1, np.int32), CTX.constant(1, "i64")):
        assert_same(OPS_NOW.dynamic_slice(x, (0, start), (3, 2)), x[:, 1:3])


@given(shape=FILLED, dtype=ANY_DTYPE, seed=SEEDS)
@DRAWN
def test_take_clamps_indices(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x = values(rng, (*shape, 3), dtype)
    axis = int(rng.integers(-x.ndim, x.ndim))
    for index_shape in ((), (0,), (2, 4)):
        indices = np.asarray(rng.integers(-9, 10, index_shape), INDEX_DTYPES[rng.integers(0, 2)])
        wanted = np.take(x, np.clip(indices, 0, x.shape[axis] - 1), axis)
        assert_same(OPS_NOW.take(x, indices, axis), wanted)


@given(shape=FILLED, dtype=ANY_DTYPE, seed=SEEDS)
@DRAWN
def test_gather_clamps_indices(shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x = values(rng, (*shape, 3), dtype)
    axis = int(rng.integers(0, x.ndim))
    for count in (0, 1, 4):
        index_shape = tuple(count if i == axis else dim for i, dim in enumerate(x.shape))
        indices = np.asarray(rng.integers(-9, 10, index_shape), INDEX_DTYPES[rng.integers(0, 2)])
        wanted = np.take_along_axis(x, np.clip(indices, 0, x.shape[axis] - 1).astype(np.int64), axis)
        assert_same(OPS_NOW.gather(x, indices, axis - x.ndim), wanted)


@pytest.mark.parametrize("dtype", NUMBERS, ids=repr)
def test_take_and_gather_equal_jaxs_clip_mode(dtype: DType) -> None:
    rng = generator(8)
    x, indices = values(rng, (4, 6), dtype), rng.integers(0, 9, (4, 3)).astype(np.int32)
    with jax.enable_x64(True):
        taken = np.asarray(jnp.take(jnp.asarray(x), jnp.asarray(indices), axis=1, mode="clip"))
        gathered = np.asarray(jnp.take_along_axis(jnp.asarray(x), jnp.asarray(indices), axis=1, mode="clip"))
    assert_same(OPS_NOW.take(x, indices, 1), taken)
    assert_same(OPS_NOW.gather(x, indices, 1), gathered)


def test_nothing_may_be_taken_from_nothing() -> None:
    nothing = np.zeros(0, np.int32)
    assert OPS_NOW.take(np.zeros((0, 3)), nothing, 0).shape == (0, 3)
    assert OPS_NOW.gather(np.zeros(0), nothing, 0).shape == (0,)
    assert OPS_NOW.scatter(np.zeros(0), np.array([0], np.int32), np.ones(1), 0).shape == (0,)


@given(before=FILLED, after=FILLED, dtype=ANY_DTYPE, seed=SEEDS)
@DRAWN
def test_put_writes_each_row_at_its_own_places(
    before: tuple[int, ...], after: tuple[int, ...], dtype: DType, seed: int
) -> None:
    rng = generator(seed)
    count, size, rows = 3, 7, 2
    x = values(rng, (rows, *before, size, *after), dtype)
    updates = values(rng, (rows, *before, count, *after), dtype)
    places = np.stack([rng.permutation(size)[:count] for _ in range(rows)])
    axis, wanted, kept = 1 + len(before), x.copy(), x.copy()
    for row, place in np.ndindex(places.shape):
        at = (row, *[slice(None)] * len(before), places[row, place])
        wanted[at] = updates[(row, *[slice(None)] * len(before), place)]
    outside = np.where(places == 0, -5, np.where(places == size - 1, size + 5, places))  # are clamped
    indices = outside.astype(INDEX_DTYPES[rng.integers(0, 2)])
    assert_same(OPS_NOW.put(x, indices, updates, axis), wanted)
    assert_same(OPS_NOW.put(x, indices, updates, axis - x.ndim), wanted)
    np.testing.assert_array_equal(x, kept)


def test_embedding_reads_rows() -> None:
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    token_ids = np.array([[4, 0], [2, 2]], np.int32)
    assert_same(OPS_NOW.embedding(table, token_ids), table[token_ids])


def _scattered(x: Any, indices: Any, updates: Any, axis: int, reduction: str) -> Any:
    """One update after the other, in Python."""
    result = x.copy()
    combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "set": lambda _, new: new}
    for place in np.ndindex(indices.shape):
        target = (*place[:axis], int(indices[place]), *place[axis + 1 :])
        if 0 <= target[axis] < x.shape[axis]:
            with np.errstate(all="ignore"):
                result[target] = combine[reduction](result[target], updates[place])
    return result


@pytest.mark.parametrize("reduction", ["set", "add", "mul", "max", "min"])
@given(shape=FILLED, dtype=ANY_DTYPE, seed=SEEDS)
@DRAWN
def test_scatter_drops_what_is_outside(reduction: str, shape: tuple[int, ...], dtype: DType, seed: int) -> None:
    rng = generator(seed)
    x = values(rng, (*shape, 4), dtype)
    axis = int(rng.integers(0, x.ndim))
    count = int(rng.integers(0, 5))
    index_shape = tuple(count if i == axis else dim for i, dim in enumerate(x.shape))
    indices = np.asarray(rng.integers(-3, 8, index_shape), INDEX_DTYPES[rng.integers(0, 2)])
    if reduction == "set":  # of several updates of one element any may win: let there be one
        line = rng.permutation(11)[:count] - 3
        lined = line.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        indices = np.ascontiguousarray(np.broadcast_to(lined, index_shape)).astype(indices.dtype)
    updates = values(rng, index_shape, dtype)
    if dtype is bool_ and reduction != "set":
        with pytest.raises(OpError, match=f"scatter_c6: {reduction} of bool"):
            OPS_NOW.scatter(x, indices, updates, axis, reduction)
        return
    before = x.copy()
    assert_close(
        OPS_NOW.scatter(x, indices, updates, axis, reduction), _scattered(x, indices, updates, axis, reduction)
    )
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("dtype", NUMBERS, ids=repr)
@pytest.mark.parametrize("reduction", ["add", "max", "min"])
def test_scatter_equals_jaxs_drop_mode(dtype: DType, reduction: str) -> None:
    rng = generator(4)
    x, updates = values(rng, (7,), dtype), values(rng, (9,), dtype)
    indices = rng.integers(0, 10, 9).astype(np.int32)
    with jax.enable_x64(True):
        wanted = getattr(jnp.asarray(x).at[jnp.asarray(indices)], reduction)(jnp.asarray(updates), mode="drop")
    assert_close(OPS_NOW.scatter(x, indices, updates, 0, reduction), np.asarray(wanted))
