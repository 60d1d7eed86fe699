"""Trials of composites that compute."""

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from tests.differential._draw import axis_of, dtype_of, generator, shape_of, tame, wild
from tests.differential._trial import Draw, Trial, trials

_ACTIVATIONS: Final[dict[str, Callable[..., Any]]] = {
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
}


def _size(x: Any) -> Any:
    """|x|, 0 where that is not finite: such results must be exact."""
    return jnp.where(jnp.isfinite(x), jnp.abs(x), 0)


@trials("relu")
def _relu(draw: Draw, name: str) -> Trial:
    dtype = dtype_of(draw, "number")
    x = wild(generator(draw), shape_of(draw), dtype)
    zero = np.zeros((), dtype.numpy)
    fn = lambda c, x: c.ops.relu(x)  # noqa: E731
    return Trial(name, "", fn, (x,), lambda x: jnp.maximum(x, zero.astype(x.dtype)), (dtype.name,), either_zero=True)


@trials(*_ACTIVATIONS)
def _activation(draw: Draw, name: str) -> Trial:
    """Allows an error relative to x near 0, as gelu's 1 + erf cancels far below it."""
    dtype = dtype_of(draw, "floating")
    x = tame(generator(draw), shape_of(draw), dtype, unusual=True)
    x = (x * x.dtype.type(draw(st.sampled_from((1.0, 0.01, 5.0))))).astype(x.dtype)
    cancels = name.startswith("gelu")
    fn = lambda c, x: getattr(c.ops, name)(x)  # noqa: E731
    ulps = 1.0 if dtype.itemsize == 2 else 4.0
    return Trial(name, "", fn, (x,), _ACTIVATIONS[name], (dtype.name,), ulps=ulps, magnitude=_size if cancels else None)


@trials("softmax")
def _softmax(draw: Draw, name: str) -> Trial:
    dtype, rng, shape = dtype_of(draw, "floating"), generator(draw), shape_of(draw, draw(st.integers(1, 4)), least=1)
    x = tame(rng, shape, dtype, draw(st.booleans()))
    said, axis = axis_of(draw, len(shape))
    ulps = 1.0 if dtype.itemsize == 2 else 8.0
    if draw(st.booleans()):
        fn = lambda c, x: c.ops.softmax(x, said)  # noqa: E731
        return Trial(name, f"axis={said}", fn, (x,), lambda x: jax.nn.softmax(x, axis), (dtype.name,), ulps=ulps)
    x = tame(rng, shape, dtype)
    where = rng.random(tuple(1 if draw(st.integers(0, 3)) == 0 else dim for dim in shape)) < 0.6

    def reference(x: Any, where: Any) -> Any:
        where = jnp.broadcast_to(where, x.shape)
        result = jax.nn.softmax(x, axis, where=where)
        return jnp.where(where, result, 0)  # of a slice of which none counts: 0

    fn = lambda c, x, where: c.ops.softmax(x, said, where)  # noqa: E731
    return Trial(name, f"axis={said}, where", fn, (x, where), reference, (dtype.name,), ulps=ulps)


@trials("log_softmax")
def _log_softmax(draw: Draw, name: str) -> Trial:
    dtype, rng, shape = dtype_of(draw, "floating"), generator(draw), shape_of(draw, draw(st.integers(1, 4)), least=1)
    said, axis = axis_of(draw, len(shape))
    return Trial(
        name,
        f"axis={said}",
        lambda c, x: c.ops.log_softmax(x, said),
        (tame(rng, shape, dtype),),
        lambda x: jax.nn.log_softmax(x, axis),
        (dtype.name,),
        ulps=1.0 if dtype.itemsize == 2 else 8.0,
        magnitude=lambda x: 1 + abs(x) + jnp.max(abs(x), axis, keepdims=True),  # near 0 the two cancel
    )


@trials("l2_norm")
def _l2_norm(draw: Draw, name: str) -> Trial:
    dtype = dtype_of(draw, "floating")
    x = tame(generator(draw), shape_of(draw, draw(st.integers(1, 4)), least=1), dtype, draw(st.booleans()))
    eps = draw(st.sampled_from((1e-6, 1e-2)))
    fn = lambda c, x: c.ops.l2_norm(x, eps)  # noqa: E731
    wanted = lambda x: x / jnp.sqrt(jnp.sum(x * x, -1, keepdims=True) + eps)  # noqa: E731
    return Trial(name, f"eps={eps}", fn, (x,), wanted, (dtype.name,), ulps=1.0 if dtype.itemsize == 2 else 6.0)


@trials("rms_norm", "layer_norm")
def _norm(draw: Draw, name: str) -> Trial:
    dtype, rng = dtype_of(draw, "floating"), generator(draw)
    shape = shape_of(draw, draw(st.integers(1, 4)), least=1)
    x = tame(rng, shape, dtype, draw(st.booleans()))
    eps = draw(st.sampled_from((1e-6, 1e-5, 1e-2)))
    weights = tuple(tame(rng, shape[-1:], dtype) for _ in range(draw(st.integers(0, 1 if name == "rms_norm" else 2))))

    def rms(x: Any, weight: Any = 1.0) -> Any:
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * weight

    def layer(x: Any, weight: Any = 1.0, bias: Any = 0.0) -> Any:
        result = (x - jnp.mean(x, -1, keepdims=True)) / jnp.sqrt(jnp.var(x, -1, keepdims=True) + eps)
        return result * weight + bias

    def size(x: Any, weight: Any = 1.0, bias: Any = 0.0) -> Any:
        """x - mean cancels, and adding the bias may."""
        scale = jnp.max(_size(x), -1, keepdims=True) / jnp.sqrt(jnp.var(x, -1, keepdims=True) + eps)
        return jnp.broadcast_to(_size(scale * weight) + abs(bias), x.shape)

    return Trial(
        name,
        f"eps={eps}, {len(weights)} weights",
        lambda c, x, *w: getattr(c.ops, name)(x, *w, eps=eps),
        (x, *weights),
        rms if name == "rms_norm" else layer,
        (dtype.name,),
        ulps=2.0 if dtype.itemsize == 2 else 8.0,
        magnitude=size if name == "layer_norm" else None,
    )
