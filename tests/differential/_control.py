"""Trials of loops and branches: small programs that are exact in every dtype."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from tests.differential._draw import dtype_of, generator, shape_of, wild
from tests.differential._trial import Draw, Trial, trials


@trials("while")
def _while(draw: Draw, name: str) -> Trial:
    """Carries a count and two tensors, captures a third; stops by count."""
    dtype, rng, shape = dtype_of(draw, "any"), generator(draw), shape_of(draw)
    x, y, captured = (wild(rng, shape, dtype, True) for _ in range(3))
    axes = tuple(range(len(shape)))
    count = draw(st.integers(-1, 5))

    def call(c: Any, n: Any, x: Any, y: Any, z: Any) -> Any:
        def body(i: Any, x: Any, y: Any) -> Any:
            return c.ops.add(i, 1), c.ops.select(c.ops.equal(i, 2), z, y), c.ops.reverse(x, axes)

        return c.ops.while_loop(lambda i, *_: c.ops.less(i, n), body, (c.ops.constant(0, "i32"), x, y))

    def reference(n: Any, x: Any, y: Any, z: Any) -> Any:
        def body(carried: Any) -> Any:
            i, x, y = carried
            return i + 1, jnp.where(i == 2, z, y), lax.rev(x, axes)

        return lax.while_loop(lambda carried: carried[0] < n, body, (jnp.int32(0), x, y))

    inputs = (np.array(count, np.int32), x, y, captured)
    return Trial(name, f"{count} rounds", call, inputs, reference, ("i32", dtype.name, dtype.name), exact=True)


@trials("fori_loop")
def _fori_loop(draw: Draw, name: str) -> Trial:
    dtype, rng, shape, stop = dtype_of(draw, "any"), generator(draw), shape_of(draw), draw(st.integers(0, 4))
    x, y = wild(rng, shape, dtype, True), wild(rng, shape, dtype, True)

    def call(c: Any, x: Any, y: Any) -> Any:
        def body(i: Any, k: Any, x: Any, y: Any) -> Any:
            return c.ops.add(c.ops.mul(k, 3), i), y, c.ops.select(c.ops.equal(i, 1), y, x)

        return c.ops.fori_loop(stop, body, (c.ops.constant(1, "i32"), x, y))

    def reference(x: Any, y: Any) -> Any:
        body = lambda i, v: (v[0] * 3 + jnp.int32(i), v[2], jnp.where(i == 1, v[2], v[1]))  # noqa: E731
        return lax.fori_loop(0, stop, body, (jnp.int32(1), x, y))

    return Trial(name, f"{stop} rounds", call, (x, y), reference, ("i32", dtype.name, dtype.name), exact=True)


@trials("cond")
def _cond(draw: Draw, name: str) -> Trial:
    dtype, rng, shape = dtype_of(draw, "any"), generator(draw), shape_of(draw)
    x, y, captured = (wild(rng, shape, dtype, True) for _ in range(3))
    axes = tuple(range(len(shape)))

    def call(c: Any, p: Any, x: Any, y: Any, z: Any) -> Any:
        return c.ops.cond(p, lambda a, b: (b, z), lambda a, b: (c.ops.reverse(z, axes), a), (x, y))

    def reference(p: Any, x: Any, y: Any, z: Any) -> Any:
        return lax.cond(p, lambda a, b: (b, z), lambda a, b: (lax.rev(z, axes), a), x, y)

    pred = np.array(draw(st.booleans()))
    return Trial(name, "", call, (pred, x, y, captured), reference, (dtype.name,) * 2, exact=True)
