"""Trials of reductions, running sums and order."""

from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from lang_core import DType, bool_
from tests.differential._draw import axes_of, axis_of, dtype_of, generator, numbers, shape_of, wild
from tests.differential._trial import Array, Draw, Trial, trials

_REDUCTIONS: Final[dict[str, Any]] = {
    "sum": jnp.sum,
    "prod": jnp.prod,
    "max": jnp.max,
    "min": jnp.min,
    "any": jnp.any,
    "all": jnp.all,
}


def _operand(draw: Draw, name: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    rng = generator(draw)
    if name in ("sum", "mean"):
        return numbers(draw, rng, shape, dtype)
    if name == "prod" and dtype.is_floating:  # of many numbers, without overflow on the way
        odd = 0.05 if draw(st.booleans()) else 0.0
        factors = rng.choice(np.array([1.0, -1.0, 1.25, 0.75, -0.5, 2.0]), shape)
        return np.where(
            rng.random(shape) < odd, np.array([np.nan, np.inf, 0.0])[rng.integers(0, 3, shape)], factors
        ).astype(dtype.numpy)
    return wild(rng, shape, dtype)


def _axes(draw: Draw, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Axes, as a caller may write them and as NumPy has them."""
    kind = draw(st.sampled_from(("all", "one", "some")))
    if kind == "all" or (kind == "one" and not shape):
        return None, None
    if kind == "one":
        return axis_of(draw, len(shape))
    axes = axes_of(draw, len(shape))
    return [axis - len(shape) if draw(st.booleans()) else axis for axis in axes], axes


@trials(*_REDUCTIONS)
def _reduction(draw: Draw, name: str) -> Trial:
    dtype = bool_ if name in ("any", "all") else dtype_of(draw, "number")
    shape = shape_of(draw, least=1 if name in ("max", "min") else 0, most=4)
    x, keep = _operand(draw, name, dtype, shape), draw(st.booleans())
    said, axes = _axes(draw, shape)
    kept: Any = {} if dtype.is_floating or name not in ("sum", "prod") else {"dtype": dtype.numpy}
    count = np.prod([dim for i, dim in enumerate(shape) if axes is None or i in np.atleast_1d(axes)]) if shape else 1
    return Trial(
        name,
        f"axis={said}, keepdims={keep}",
        lambda c, x: getattr(c.ops, name)(x, said, keep),
        (x,),
        lambda x: _REDUCTIONS[name](x, axis=axes, keepdims=keep, **kept),
        (dtype.name,),
        ulps={"sum": 2.0, "prod": 1.0 + float(count) * (dtype.itemsize > 2)}.get(name, 0.0),
        magnitude=(lambda x: jnp.sum(_size(x), axis=axes, keepdims=keep)) if name == "sum" else None,
        either_zero=name in ("max", "min"),
    )


def _size(x: Any) -> Any:
    """|x|, 0 where that is not finite: such sums must be exact."""
    return jnp.where(jnp.isfinite(x), jnp.abs(x), 0)


@trials("mean")
def _mean(draw: Draw, name: str) -> Trial:
    dtype, shape = dtype_of(draw, "floating"), shape_of(draw)
    x, keep = _operand(draw, name, dtype, shape), draw(st.booleans())
    said, axes = _axes(draw, shape)
    said = tuple(said) if isinstance(said, list) else said
    return Trial(
        name,
        f"axis={said}, keepdims={keep}",
        lambda c, x: c.ops.mean(x, said, keep),
        (x,),
        lambda x: jnp.mean(x, axis=axes, keepdims=keep),
        (dtype.name,),
        ulps=3,
        magnitude=lambda x: jnp.mean(_size(x), axis=axes, keepdims=keep),
    )


@trials("argmax", "argmin")
def _arg_reduction(draw: Draw, name: str) -> Trial:
    dtype, shape = dtype_of(draw, "number"), shape_of(draw, draw(st.integers(1, 4)), least=1)
    x, keep = wild(generator(draw), shape, dtype), draw(st.booleans())
    said, axis = axis_of(draw, len(shape))
    return Trial(
        name,
        f"axis={said}, keepdims={keep}",
        lambda c, x: getattr(c.ops, name)(x, said, keep),
        (x,),
        lambda x: getattr(jnp, name)(x, axis=axis, keepdims=keep).astype(jnp.int32),
        ("i32",),
    )


@trials("cumsum")
def _cumsum(draw: Draw, name: str) -> Trial:
    dtype, shape = dtype_of(draw, "number"), shape_of(draw, draw(st.integers(1, 4)))
    x = numbers(draw, generator(draw), shape, dtype)
    said, axis = axis_of(draw, len(shape))
    return Trial(
        name,
        f"axis={said}",
        lambda c, x: c.ops.cumsum(x, said),
        (x,),
        lambda x: jnp.cumsum(x, axis, dtype=x.dtype),
        (dtype.name,),
        ulps=3,
        magnitude=lambda x: jnp.cumsum(_size(x), axis),
    )


@trials("sort")
def _sort(draw: Draw, name: str) -> Trial:
    dtype, shape = dtype_of(draw, "number"), shape_of(draw, draw(st.integers(1, 4)))
    x, descending = wild(generator(draw), shape, dtype), draw(st.booleans())
    said, axis = axis_of(draw, len(shape))

    def reference(x: Any) -> Any:
        order = jnp.argsort(x, axis, stable=True, descending=descending)
        return jnp.take_along_axis(x, order, axis), order.astype(jnp.int32)

    fn = lambda c, x: c.ops.sort(x, said, descending)  # noqa: E731
    return Trial(name, f"axis={said}, descending={descending}", fn, (x,), reference, (dtype.name, "i32"))


@trials("top_k")
def _top_k(draw: Draw, name: str) -> Trial:
    dtype, shape = dtype_of(draw, "number"), shape_of(draw, draw(st.integers(1, 4)), most=7)
    x = wild(generator(draw), shape, dtype)
    said, axis = axis_of(draw, len(shape))
    k = draw(st.integers(0, shape[axis]))

    def reference(x: Any) -> Any:
        keys = jnp.where(x == 0, jnp.zeros_like(x), x)  # jax takes 0.0 for the larger zero; here zeros are equal
        _, order = lax.top_k(jnp.moveaxis(keys, axis, -1), k)
        order = jnp.moveaxis(order, -1, axis)
        return jnp.take_along_axis(x, order, axis), order

    fn = lambda c, x: c.ops.top_k(x, k, said)  # noqa: E731
    return Trial(name, f"k={k}, axis={said}", fn, (x,), reference, (dtype.name, "i32"))
