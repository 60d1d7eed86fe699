"""Trials of ops that move elements without computing, and of those that make tensors."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from tests.differential._draw import axes_of, axis_of, dtype_of, generator, shape_of, tame, wild
from tests.differential._trial import Array, Draw, Trial, trials


def _moved(name: str, what: str, call: Any, inputs: tuple[Array, ...], reference: Any, results: int = 1) -> Trial:
    """A trial in which nothing is computed."""
    dtype = Trial(name, what, call, inputs[:1], reference, ()).specs[0].dtype.name
    return Trial(name, what, call, inputs, reference, (dtype,) * results, exact=True)


def _any_array(draw: Draw, rank: int | None = None, least: int = 0) -> Array:
    return wild(generator(draw), shape_of(draw, rank, least), dtype_of(draw, "any"), True)


@trials("broadcast")
def _broadcast(draw: Draw, name: str) -> Trial:
    shape = shape_of(draw)
    tail = shape[draw(st.integers(0, len(shape))) :]
    x = wild(generator(draw), tuple(1 if draw(st.booleans()) else dim for dim in tail), dtype_of(draw, "any"), True)
    fn = lambda c, x: c.ops.broadcast(x, shape)  # noqa: E731
    return _moved(name, f"shape={shape}", fn, (x,), lambda x: jnp.broadcast_to(x, shape))


@trials("reshape")
def _reshape(draw: Draw, name: str) -> Trial:
    x = _any_array(draw)
    shape = list(draw(st.permutations(x.shape)))
    while len(shape) > 1 and draw(st.booleans()):  # merge the first two
        shape[:2] = [shape[0] * shape[1]]
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    if shape and x.size and draw(st.booleans()):
        shape[draw(st.integers(0, len(shape) - 1))] = -1
    fn = lambda c, x: c.ops.reshape(x, shape)  # noqa: E731
    return _moved(name, f"shape={shape}", fn, (x,), lambda x: jnp.reshape(x, shape))


@trials("transpose")
def _transpose(draw: Draw, name: str) -> Trial:
    x = _any_array(draw)
    axes = draw(st.one_of(st.none(), st.permutations(range(x.ndim))))
    if axes and draw(st.booleans()):
        axes = [axis - x.ndim for axis in axes]
    fn = lambda c, x: c.ops.transpose(x, axes)  # noqa: E731
    return _moved(name, f"axes={axes}", fn, (x,), lambda x: jnp.transpose(x, axes))


@trials("concat")
def _concat(draw: Draw, name: str) -> Trial:
    dtype, rng, shape = dtype_of(draw, "any"), generator(draw), shape_of(draw, draw(st.integers(1, 4)))
    said, axis = axis_of(draw, len(shape))
    dims = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    arrays = tuple(wild(rng, (*shape[:axis], dim, *shape[axis + 1 :]), dtype, True) for dim in dims)
    fn = lambda c, *xs: c.ops.concat(xs, said)  # noqa: E731
    return _moved(name, f"axis={said}", fn, arrays, lambda *xs: lax.concatenate(xs, axis))


def _bounds(draw: Draw, dim: int) -> tuple[int, int]:
    low, high = sorted((draw(st.integers(0, dim)), draw(st.integers(0, dim))))
    return low, high


@trials("slice")
def _slice(draw: Draw, name: str) -> Trial:
    x = _any_array(draw)
    start, stop = (
        (tuple(side) for side in zip(*(_bounds(draw, dim) for dim in x.shape), strict=True)) if x.ndim else ((), ())
    )
    step = draw(st.one_of(st.none(), st.integers(1, 3), st.tuples(*[st.integers(1, 4)] * x.ndim)))
    steps = (step or 1,) * x.ndim if step is None or isinstance(step, int) else step
    fn = lambda c, x: c.ops.slice(x, start, stop, step)  # noqa: E731
    return _moved(name, f"{start}, {stop}, {step}", fn, (x,), lambda x: lax.slice(x, start, stop, steps))


@trials("slice_axis")
def _slice_axis(draw: Draw, name: str) -> Trial:
    x = _any_array(draw, draw(st.integers(1, 4)))
    said, axis = axis_of(draw, x.ndim)
    start, stop = _bounds(draw, x.shape[axis])
    fn = lambda c, x: c.ops.slice_axis(x, said, start, stop)  # noqa: E731
    return _moved(name, f"{said}, {start}, {stop}", fn, (x,), lambda x: lax.slice_in_dim(x, start, stop, axis=axis))


@trials("split")
def _split(draw: Draw, name: str) -> Trial:
    x = _any_array(draw, draw(st.integers(1, 4)))
    said, axis = axis_of(draw, x.ndim)
    cuts = sorted(draw(st.lists(st.integers(0, x.shape[axis]), max_size=3)))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, x.shape[axis]], strict=True)]
    fn = lambda c, x: c.ops.split(x, sizes, said)  # noqa: E731
    return _moved(name, f"{sizes}, {said}", fn, (x,), lambda x: jnp.split(x, cuts, axis), len(sizes))


@trials("pad")
def _pad(draw: Draw, name: str) -> Trial:
    x = _any_array(draw)
    low, high, interior = (tuple(draw(st.integers(0, 3)) for _ in x.shape) for _ in range(3))
    value = wild(generator(draw), (), Trial(name, "", id, (x,), id, ()).specs[0].dtype, True)
    sides = list(zip(low, high, interior, strict=True))
    if draw(st.booleans()):
        sides = [(a, b, 0) for a, b, _ in sides]
        zero = np.zeros((), x.dtype)
        fn = lambda c, x: c.ops.pad(x, low, high)  # noqa: E731
        return _moved(name, f"{low}, {high}", fn, (x,), lambda x: lax.pad(x, zero, sides))
    fn = lambda c, x, v: c.ops.pad(x, low, high, v, interior)  # noqa: E731
    return _moved(name, f"{low}, {high}, {interior}", fn, (x, value), lambda x, v: lax.pad(x, v, sides))


@trials("reverse")
def _reverse(draw: Draw, name: str) -> Trial:
    x = _any_array(draw)
    axes = draw(st.permutations(axes_of(draw, x.ndim)))
    said = [axis - x.ndim if draw(st.booleans()) else axis for axis in axes]
    fn = lambda c, x: c.ops.reverse(x, said)  # noqa: E731
    return _moved(name, f"axes={said}", fn, (x,), lambda x: lax.rev(x, axes))


@trials("iota")
def _iota(draw: Draw, name: str) -> Trial:
    dtype, most = dtype_of(draw, "number"), draw(st.sampled_from((5, 5, 300)))
    shape = shape_of(draw, draw(st.integers(1, 2 if most > 5 else 4)), most=most)
    said, axis = axis_of(draw, len(shape))
    fn = lambda c: c.ops.iota(shape, said, dtype)  # noqa: E731
    wanted = jnp.dtype(dtype.numpy)
    count = lambda: lax.broadcasted_iota(jnp.int64, shape, axis).astype(wanted)  # noqa: E731
    return Trial(name, f"{shape}, {said}, {dtype}", fn, (), count, (dtype.name,), exact=True)


@trials("constant")
def _constant(draw: Draw, name: str) -> Trial:
    x = _any_array(draw)
    dtype = Trial(name, "", id, (x,), id, ()).specs[0].dtype.name
    if draw(st.booleans()):  # nested sequences
        x = tame(generator(draw), x.shape, dtype_of(draw, "any"))
        dtype = Trial(name, "", id, (x,), id, ()).specs[0].dtype.name
        value: Any = x.tolist()
        fn = lambda c: c.ops.reshape(c.ops.constant(value, dtype), x.shape)  # noqa: E731
    else:
        fn = lambda c: c.ops.constant(x)  # noqa: E731
    return Trial(name, f"{x.shape}", fn, (), lambda x: x, (dtype,), given=(x,), exact=True)


@trials("placeholder")
def _placeholder(draw: Draw, name: str) -> Trial:
    x = _any_array(draw)
    dtype = Trial(name, "", id, (x,), id, ()).specs[0].dtype
    fn = lambda c: c.ops.placeholder("x0", x.shape, dtype)  # noqa: E731
    return Trial(name, "", fn, (x,), lambda x: x, (dtype.name,), exact=True, named=True)


@trials("full", "zeros", "ones")
def _full(draw: Draw, name: str) -> Trial:
    dtype, shape = dtype_of(draw, "any"), shape_of(draw)
    wanted = jnp.dtype(dtype.numpy)
    if name != "full":
        fn = lambda c: getattr(c.ops, name)(shape, dtype)  # noqa: E731
        return Trial(
            name, f"{shape}, {dtype}", fn, (), lambda: getattr(jnp, name)(shape, wanted), (dtype.name,), exact=True
        )
    value = wild(generator(draw), (), dtype, True)
    number = value.tolist() if dtype.is_integer or dtype.name == "bool" else float(value.astype(np.float64))
    fn = lambda c: c.ops.full(shape, number, dtype)  # noqa: E731
    like = lambda v: jnp.full(shape, v)  # noqa: E731
    return Trial(name, f"{shape}, {number}, {dtype}", fn, (), like, (dtype.name,), given=(value,), exact=True)
