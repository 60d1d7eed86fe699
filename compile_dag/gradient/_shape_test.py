import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compile_dag.gradient._checks import check, normal


def test_broadcast() -> None:
    check(lambda ctx, x: ctx.ops.broadcast(x, (2, 3, 4)), lambda x: jnp.broadcast_to(x, (2, 3, 4)), normal(3, 1))


def test_reshape_and_transpose() -> None:
    def fn(ctx, x):
        return ctx.ops.reshape(ctx.ops.transpose(x, (2, 0, 1)), (5, 6))

    check(fn, lambda x: jnp.transpose(x, (2, 0, 1)).reshape(5, 6), normal(2, 3, 5))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int) -> None:
    shapes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
    for i, shape in enumerate(shapes):
        shape[axis] += i
    inputs = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    check(lambda ctx, *xs: ctx.ops.concat(xs, axis), lambda *xs: jnp.concatenate(xs, axis), *inputs)


def test_concat_of_one_tensor_twice() -> None:
    check(lambda ctx, x: ctx.ops.concat([x, x], 0), lambda x: jnp.concatenate([x, x], 0), normal(2, 3))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.data())
def test_slice_pad_and_reverse(data) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    start = [data.draw(st.integers(0, dim)) for dim in shape]
    stop = [data.draw(st.integers(a, dim)) for a, dim in zip(start, shape, strict=True)]
    step = [data.draw(st.integers(1, 3)) for _ in shape]
    low, high, interior = ([data.draw(st.integers(0, 2)) for _ in shape] for _ in range(3))
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))

    def fn(ctx, x, value):
        padded = ctx.ops.pad(ctx.ops.slice(x, start, stop, step), low, high, value, interior)
        return ctx.ops.reverse(padded, axes)

    def reference(x, value):
        padding = list(zip(low, high, interior, strict=True))
        return jnp.flip(jax.lax.pad(jax.lax.slice(x, start, stop, step), value, padding), axes)

    check(fn, reference, normal(*shape), np.array(0.7))
