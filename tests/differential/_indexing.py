"""Trials of ops that read or write at run-time positions."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from lang_core import bool_
from tests.differential._draw import axis_of, dtype_of, generator, indices, shape_of, tame, wild
from tests.differential._trial import Array, Draw, Trial, trials


def _starts(draw: Draw, shape: tuple[int, ...]) -> tuple[Array, ...]:
    rng, dtype = generator(draw), draw(st.sampled_from((np.int32, np.int64)))
    return tuple(indices(draw, rng, (), dim).astype(dtype) for dim in shape)


def _parts(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(draw(st.integers(0, dim)) for dim in shape)


@trials("dynamic_slice")
def _dynamic_slice(draw: Draw, name: str) -> Trial:
    dtype, shape = dtype_of(draw, "any"), shape_of(draw)
    x, starts, sizes = wild(generator(draw), shape, dtype, True), _starts(draw, shape), _parts(draw, shape)
    fn = lambda c, x, *at: c.ops.dynamic_slice(x, at, sizes)  # noqa: E731
    plain = (False,) * len(shape)
    wanted = lambda x, *at: lax.dynamic_slice(x, at, sizes, allow_negative_indices=plain)  # noqa: E731
    return Trial(name, f"sizes={sizes}", fn, (x, *starts), wanted, (dtype.name,), exact=True)


@trials("dynamic_update_slice")
def _dynamic_update_slice(draw: Draw, name: str) -> Trial:
    dtype, shape, rng = dtype_of(draw, "any"), shape_of(draw), generator(draw)
    x, update = wild(rng, shape, dtype, True), wild(rng, _parts(draw, shape), dtype, True)
    starts = _starts(draw, shape)
    fn = lambda c, x, u, *at: c.ops.dynamic_update_slice(x, u, at)  # noqa: E731
    plain = (False,) * len(shape)
    wanted = lambda x, u, *at: lax.dynamic_update_slice(x, u, at, allow_negative_indices=plain)  # noqa: E731
    return Trial(name, "", fn, (x, update, *starts), wanted, (dtype.name,), exact=True)


@trials("take", "embedding")
def _take(draw: Draw, name: str) -> Trial:
    dtype, rng = dtype_of(draw, "any"), generator(draw)
    shape = shape_of(draw, draw(st.integers(1, 3)))
    said, axis = axis_of(draw, len(shape)) if name == "take" else (0, 0)
    at = shape_of(draw, draw(st.integers(0, 2))) if shape[axis] else (2, 0)
    x, places = wild(rng, shape, dtype, True), indices(draw, rng, at, shape[axis])
    most = max(shape[axis] - 1, 0)
    fn = (lambda c, x, i: c.ops.take(x, i, said)) if name == "take" else (lambda c, x, i: c.ops.embedding(x, i))
    wanted = lambda x, i: _taken(x, jnp.clip(i, 0, most), axis)  # noqa: E731
    return Trial(name, f"axis={said}", fn, (x, places), wanted, (dtype.name,), exact=True)


def _taken(x: Any, i: Any, axis: int) -> Any:
    if not i.size:  # jax takes nothing from nothing, either
        return jnp.zeros((*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]), x.dtype)
    return jnp.take(x, i, axis)


@trials("gather")
def _gather(draw: Draw, name: str) -> Trial:
    dtype, rng = dtype_of(draw, "any"), generator(draw)
    shape = shape_of(draw, draw(st.integers(1, 4)), least=1)
    said, axis = axis_of(draw, len(shape))
    at = tuple(draw(st.integers(0, 4)) if i == axis else dim for i, dim in enumerate(shape))
    x, places = wild(rng, shape, dtype, True), indices(draw, rng, at, shape[axis])
    fn = lambda c, x, i: c.ops.gather(x, i, said)  # noqa: E731
    wanted = lambda x, i: jnp.take_along_axis(x, jnp.clip(i, 0, shape[axis] - 1), axis)  # noqa: E731
    return Trial(name, f"axis={said}", fn, (x, places), wanted, (dtype.name,), exact=True)


@trials("put")
def _put(draw: Draw, name: str) -> Trial:
    dtype, rng = dtype_of(draw, "any"), generator(draw)
    shape = shape_of(draw, draw(st.integers(2, 4)))
    axis = draw(st.integers(1, len(shape) - 1))
    said, count = draw(st.sampled_from((axis, axis - len(shape)))), draw(st.integers(0, shape[axis]))
    # Distinct after clamping: what is below 0 stands for 0, what is above for the last one.
    places = np.argsort(rng.random((shape[0], shape[axis])), 1)[:, :count].astype(
        draw(st.sampled_from((np.int32, np.int64)))
    )
    places = np.where(places == 0, -draw(st.integers(0, 9)), places)
    places = np.where(places == shape[axis] - 1, places + draw(st.integers(0, 9)), places).astype(places.dtype)
    if shape[axis] == 1:
        places = rng.integers(-9, 9, places.shape).astype(places.dtype)
    at = tuple(count if i == axis else dim for i, dim in enumerate(shape))
    x, updates = wild(rng, shape, dtype, True), wild(rng, at, dtype, True)
    where = [rng.random(places.shape) < 0.6] if draw(st.booleans()) else []
    fn = lambda c, x, i, u, *w: c.ops.put(x, i, u, said, *w)  # noqa: E731
    wanted = lambda x, i, u, *w: _put_by_jax(x, jnp.clip(i, 0, max(shape[axis] - 1, 0)), u, axis, *w)  # noqa: E731
    return Trial(name, f"axis={said}", fn, (x, places, updates, *where), wanted, (dtype.name,), exact=True)


def _put_by_jax(x: Any, places: Any, updates: Any, axis: int, where: Any = True) -> Any:
    if not updates.size:
        return x
    rows, places = jnp.arange(x.shape[0])[:, None], jnp.where(where, places, x.shape[axis])
    put = jnp.moveaxis(x, axis, 1).at[rows, places].set(jnp.moveaxis(updates, axis, 1), mode="drop")
    return jnp.moveaxis(put, 1, axis)


@trials("scatter")
def _scatter(draw: Draw, name: str) -> Trial:
    reduction = draw(st.sampled_from(("set", "add", "mul", "max", "min")))
    dtype, rng = dtype_of(draw, "any"), generator(draw)
    if dtype is bool_:
        reduction = "set"
    shape = shape_of(draw, draw(st.integers(1, 4)))
    said, axis = axis_of(draw, len(shape))
    at = tuple(draw(st.integers(0, 4)) if i == axis else dim for i, dim in enumerate(shape))
    places = indices(draw, rng, at, shape[axis])
    if reduction == "set":  # which of several updates of one element wins is open
        lines = np.argsort(rng.random((*at[:axis], max(shape[axis], at[axis]) + 2, *at[axis + 1 :])), axis) - 1
        places = np.take(lines, range(at[axis]), axis).astype(places.dtype)
    values = wild if reduction in ("set", "max", "min") or dtype.is_integer else tame
    x, updates = values(rng, shape, dtype), values(rng, at, dtype)
    return Trial(
        name,
        f"axis={said}, {reduction}",
        lambda c, x, i, u: c.ops.scatter(x, i, u, said, reduction),
        (x, places, updates),
        lambda x, i, u: _scattered(x, i, u, axis, reduction),
        (dtype.name,),
        exact=reduction == "set",
        ulps=0.0 if reduction in ("set", "max", "min") else 1.0 + at[axis],
        magnitude=(lambda x, i, u: _scattered(abs(x), i, abs(u), axis, "add")) if reduction == "add" else None,
        either_zero=reduction in ("max", "min"),
    )


def _scattered(x: Any, places: Any, updates: Any, axis: int, reduction: str) -> Any:
    if not places.size or not x.size:
        return x
    at = list(jnp.indices(places.shape))
    at[axis] = jnp.where((places >= 0) & (places < x.shape[axis]), places, x.shape[axis])
    method = {"mul": "multiply"}.get(reduction, reduction)
    return getattr(x.at[tuple(at)], method)(updates, mode="drop")
