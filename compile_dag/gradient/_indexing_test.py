import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compile_dag.gradient._checks import check, check_differences, gradients, normal, rng


def starts(ctx, *numbers: int):
    return [ctx.ops.constant(n) for n in numbers]


@pytest.mark.parametrize("at", [(1, 2), (-4, 9)])
def test_dynamic_slice(at) -> None:
    check(
        lambda ctx, x: ctx.ops.dynamic_slice(x, starts(ctx, *at), (2, 3)),
        lambda x: jax.lax.dynamic_slice(x, [max(at[0], 0), at[1]], (2, 3)),
        normal(4, 6),
    )


@pytest.mark.parametrize("at", [(1, 2), (9, 0)])
def test_dynamic_update_slice(at) -> None:
    check(
        lambda ctx, x, update: ctx.ops.dynamic_update_slice(x, update, starts(ctx, *at)),
        lambda x, update: jax.lax.dynamic_update_slice(x, update, at),
        normal(4, 6),
        normal(2, 3, seed=1),
    )


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("axis", [1, 2])
def test_put(axis: int, chosen: bool) -> None:
    indices = np.array([[2, -4], [9, 1], [0, 1]], np.int32)  # of a row distinct, clamped too
    made = np.array([[True, False], [True, True], [False, False]]) if chosen else np.ones((3, 2), np.bool_)
    shape = [3, 4, 5]
    shape[axis] = 2

    def wanted(x, updates):
        turned, rows = jnp.moveaxis(x, axis, 1), np.broadcast_to(np.arange(3)[:, None], (3, 2))
        places = np.clip(indices, 0, x.shape[axis] - 1)
        put = turned.at[rows[made], places[made]].set(jnp.moveaxis(updates, axis, 1)[made])
        return jnp.moveaxis(put, 1, axis)

    def fn(ctx, x, updates):
        where = (ctx.ops.constant(made),) if chosen else ()
        return ctx.ops.put(x, ctx.ops.constant(indices), updates, axis, *where)

    check(fn, wanted, normal(3, 4, 5), normal(*shape, seed=1))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take_with_repeats_and_clamped_indices(axis: int) -> None:
    indices = np.array([[0, 2, 2], [-5, 9, 1]], np.int32)
    check(
        lambda ctx, x: ctx.ops.take(x, ctx.ops.constant(indices), axis),
        lambda x: jnp.take(x, np.clip(indices, 0, x.shape[axis] - 1), axis),
        normal(3, 4, 5),
    )


def test_an_embedding_in_sixteen_bits_sums_in_32() -> None:
    """4096 reads of one row of ones: in bf16 the sum would stop at 256."""
    table = np.ones((3, 2), np.float16)
    ids = np.zeros(4096, np.int32)
    (slope,) = gradients(
        lambda ctx, t: ctx.ops.mean(ctx.ops.cast(ctx.ops.embedding(t, ctx.ops.constant(ids)), "f32"), 0), [table]
    )
    assert slope.dtype == np.float16
    assert np.isfinite(slope).all()
    assert slope[0].any()
    assert not slope[1:].any()


@pytest.mark.parametrize("axis", [0, 1])
def test_gather(axis: int) -> None:
    shape = [4, 5]
    shape[axis] = 7
    indices = rng().integers(-2, 7, shape).astype(np.int64)
    check(
        lambda ctx, x: ctx.ops.gather(x, ctx.ops.constant(indices), axis),
        lambda x: jnp.take_along_axis(x, np.clip(indices, 0, x.shape[axis] - 1), axis),
        normal(4, 5),
    )


def scattered(indices: np.ndarray, axis: int, reduction: str):
    return lambda ctx, x, updates: ctx.ops.scatter(x, ctx.ops.constant(indices), updates, axis, reduction)


def places(indices: np.ndarray, axis: int) -> tuple:
    return tuple(indices if i == axis else grid for i, grid in enumerate(np.indices(indices.shape)))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reduction", ["set", "add", "mul", "max", "min"])
def test_scatter_to_places_of_their_own(reduction: str, axis: int) -> None:
    x, count = normal(4, 6), 3
    shape = [4, 6]
    shape[axis] = count
    lines = [rng(i).permutation(x.shape[axis] + 2)[:count] - 1 for i in range(x.shape[1 - axis])]
    indices = np.stack(lines, 1 - axis).astype(np.int32)  # some are outside
    drop = np.where((indices < 0) | (indices >= x.shape[axis]), x.shape[axis] + 99, indices)
    method = "multiply" if reduction == "mul" else reduction

    def reference(x, updates):
        return getattr(x.at[places(drop, axis)], method)(updates, mode="drop", unique_indices=True)

    known = None if reduction in ("max", "min") else reference  # jax differentiates no scatter of extremes
    check(scattered(indices, axis, reduction), known, x, normal(*shape, seed=1))


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatter_several_to_one_place(reduction: str) -> None:
    indices = np.array([[0, 1, 1, 1, 4], [2, 2, 0, 0, -1]], np.int32)
    check(scattered(indices, 1, reduction), None, normal(2, 4), normal(2, 5, seed=1))


def test_of_several_updates_that_set_one_place_the_one_that_won_gets_the_gradient() -> None:
    indices = np.array([1, 1, 0, 1], np.int32)
    inputs = [normal(3), normal(4, seed=1)]
    slopes = gradients(scattered(indices, 0, "set"), inputs)
    assert np.count_nonzero(slopes[1]) == 2
    check_differences(scattered(indices, 0, "set"), inputs, slopes)


@pytest.mark.parametrize("zeros", [[0], [0, 1], [0, 1, 2], [3]])
def test_scatter_of_products_with_zeros(zeros: list[int]) -> None:
    indices, updates = np.array([1, 1, 1, 0], np.int32), normal(4, seed=1)
    updates[zeros] = 0
    check(scattered(indices, 0, "mul"), None, normal(3), updates)


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_scattered_ties_share_evenly(reduction: str) -> None:
    x, updates = np.array([1.0, 5.0]), np.array([1.0, 1.0, 1.0])
    weights = np.array([6.0, 1.0])

    def fn(ctx, x, updates):
        return ctx.ops.mul(
            scattered(np.array([0, 0, 1], np.int32), 0, reduction)(ctx, x, updates), ctx.constant(weights)
        )

    slopes = gradients(fn, [x, updates])
    assert slopes[0][0] == slopes[1][0] == slopes[1][1]
    if reduction == "max":
        assert (slopes[1][2], slopes[0][1] != 0) == (0, True)
    else:
        assert (slopes[0][1], slopes[1][2] != 0) == (0, True)


def test_scatter_into_nothing() -> None:
    check(scattered(np.zeros((2, 3), np.int32), 0, "add"), None, normal(0, 3), normal(2, 3))
