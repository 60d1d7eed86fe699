"""Trials of attention, linear attention and what goes with it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from lang_core import DType
from tests.differential._draw import dtype_of, generator, tame
from tests.differential._trial import Array, Draw, Trial, trials


def _sizes(draw: Draw, *most: int) -> tuple[int, ...]:
    return tuple(draw(st.integers(1, size)) for size in most)


@trials("gated_delta_rule")
def _gated_delta_rule(draw: Draw, name: str) -> Trial:
    """Keys as short as ``l2_norm`` makes them: longer ones let the state grow without bound."""
    dtype, rng = dtype_of(draw, "floating"), generator(draw)
    batch, tokens, shared, group, key, value = _sizes(draw, 2, 7, 2, 2, 4, 5)
    per_channel, gated, ruled, carried = (draw(st.booleans()) for _ in range(4))
    scale, chunk = draw(st.sampled_from((None, 1.0))), draw(st.sampled_from((None, 1, 2, 3)))
    q = tame(rng, (batch, tokens, shared * group, key), dtype)
    k = (tame(rng, (batch, tokens, shared, key), dtype) / dtype.numpy.type(8)).astype(dtype.numpy)
    v = tame(rng, (batch, tokens, shared, value), dtype)
    g = -np.abs(tame(rng, (batch, tokens, shared, *([key] if per_channel else [])), dtype)) if gated else None
    beta = rng.random((batch, tokens, shared)).astype(dtype.numpy) if ruled else None
    state = tame(rng, (batch, shared, key, value), dtype) if carried else None
    optional = (g, beta, state)
    inputs = (q, k, v, *(x for x in optional if x is not None))

    def spread(rest: Any) -> list[Any]:
        """The optional operands, None where absent."""
        left = iter(rest)
        return [None if x is None else next(left) for x in optional]

    def reference(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        g, beta, state = spread(rest)
        g = jnp.zeros((batch, tokens, shared)) if g is None else g
        g = g if g.ndim == 4 else g[..., None]
        now = jnp.zeros((batch, shared, key, value)) if state is None else state
        result = []
        for t in range(tokens):
            now = jnp.exp(g[:, t])[..., None] * now
            u = v[:, t]
            if beta is not None:
                u = beta[:, t, :, None] * (u - jnp.einsum("bkh,bkhv->bkv", k[:, t], now))
            now = now + k[:, t][..., None] * u[..., None, :]
            result.append(jnp.einsum("bnh,bnhv->bnv", q[:, t], jnp.repeat(now, group, 1)))
        return jnp.stack(result, 1) * (key**-0.5 if scale is None else scale), now

    def size(*arrays: Any) -> Any:
        result, now = reference(*arrays)
        return jnp.full(result.shape, 100.0), jnp.full(now.shape, 20.0)

    wide = "f64" if dtype.name == "f64" else "f32"
    return Trial(
        name,
        f"scale={scale}, chunk_size={chunk}, given: {[x is not None for x in optional]}",
        lambda c, q, k, v, *rest: c.ops.gated_delta_rule(q, k, v, *spread(rest), scale, chunk),
        inputs,
        reference,
        (dtype.name, wide if state is None else dtype.name),
        ulps=4,
        magnitude=size,
    )


@trials("causal_conv")
def _causal_conv(draw: Draw, name: str) -> Trial:
    dtype, rng = dtype_of(draw, "floating"), generator(draw)
    batch, tokens, channels, taps = _sizes(draw, 2, 5, 4, 4)
    x, weight = tame(rng, (batch, tokens, channels), dtype), tame(rng, (channels, taps), dtype)
    bias = tame(rng, (channels,), dtype) if draw(st.booleans()) else None
    state = tame(rng, (batch, taps - 1, channels), dtype) if draw(st.booleans()) else None
    count = np.array(draw(st.integers(0, tokens)), np.int32) if draw(st.booleans()) else None
    optional = (bias, state, count)
    inputs = (x, weight, *(array for array in optional if array is not None))

    def spread(rest: Any) -> list[Any]:
        left = iter(rest)
        return [None if array is None else next(left) for array in optional]

    def reference(x: Any, weight: Any, *rest: Any) -> Any:
        bias, state, _ = spread(rest)
        before = jnp.zeros((batch, taps - 1, channels)) if state is None else state
        whole = jnp.concatenate((before, x), 1)
        y = lax.conv_general_dilated(
            whole, weight.T[:, None, :], (1,), "VALID", None, None, ("NWC", "WIO", "NWC"), channels
        )
        last = tokens if count is None else int(count)
        return y if bias is None else y + bias, whole[:, last : last + taps - 1]

    def size(x: Any, weight: Any, *rest: Any) -> Any:
        y, after = reference(abs(x), abs(weight), *map(abs, rest))
        return y, jnp.zeros_like(after)

    return Trial(
        name,
        f"count={count}, given: {[array is not None for array in optional]}",
        lambda c, x, weight, *rest: c.ops.causal_conv(x, weight, *spread(rest)),
        inputs,
        reference,
        (dtype.name,) * 2,
        ulps=2,
        magnitude=size,
    )


def _mask(draw: Draw, rng: np.random.Generator, sizes: tuple[int, ...]) -> Array | None:
    batch, heads, queries, keys = sizes
    kind = draw(st.sampled_from(("none", "causal", "shared", "per_head")))
    if kind == "none":
        return None
    if kind == "causal":
        return np.arange(keys)[None, :] <= np.arange(queries)[:, None] + keys - queries
    if kind == "shared":
        return rng.random((queries, keys)) < 0.6
    lead = (draw(st.sampled_from((1, batch))), draw(st.sampled_from((1, heads))))
    return rng.random((*lead, queries, keys)) < 0.6


def _bias(draw: Draw, rng: np.random.Generator, sizes: tuple[int, ...], dtype: DType) -> Array | None:
    """Draws a mask of any shape that broadcasts, with -inf here and there."""
    if draw(st.booleans()):
        return None
    shape = tuple(draw(st.sampled_from((1, dim))) for dim in sizes)[draw(st.integers(0, 4)) :]
    result = tame(rng, shape, dtype)
    return np.where(rng.random(shape) < 0.2, np.array(-np.inf, dtype.numpy), result)


@trials("attention")
def _attention(draw: Draw, name: str) -> Trial:
    dtype, rng = dtype_of(draw, "floating"), generator(draw)
    batch, shared, group, queries, keys, size, values = (draw(st.integers(1, most)) for most in (2, 3, 3, 4, 5, 4, 4))
    heads = shared * group
    q = tame(rng, (batch, heads, queries, size), dtype)
    k, v = tame(rng, (batch, shared, keys, size), dtype), tame(rng, (batch, shared, keys, values), dtype)
    mask = _mask(draw, rng, (batch, heads, queries, keys))
    scale, softcap = draw(st.sampled_from((None, 0.3, 1.0))), draw(st.sampled_from((None, 2.0, 20.0)))
    bias = _bias(draw, rng, (batch, heads, queries, keys), dtype)
    inputs = tuple(array for array in (q, k, v, mask, bias) if array is not None)

    def options(rest: tuple[Any, ...]) -> tuple[Any, Any]:
        return rest[0] if mask is not None else None, rest[-1] if bias is not None else None

    def call(c: Any, q: Any, k: Any, v: Any, *rest: Any) -> Any:
        seen, more = options(rest)
        return c.ops.attention(q, k, v, seen, scale, softcap, more)

    def reference(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        seen, more = options(rest)
        every = jnp.broadcast_to(True if seen is None else seen, (batch, heads, queries, keys))
        every = every if more is None else every & (more > -jnp.inf)
        if (
            softcap is None and more is None and values == size and dtype.name != "f64"
        ):  # jax computes the weights in f32
            # Where a query may look nowhere, jax averages all; here it gives zeros.
            q, k, v = (array.transpose(0, 2, 1, 3) for array in (q, k, v))
            result = jax.nn.dot_product_attention(q, k, v, mask=every, scale=scale).transpose(0, 2, 1, 3)
            return jnp.where(every.any(-1, keepdims=True), result, 0)
        k, v = (jnp.repeat(array, group, 1) for array in (k, v))
        scores = jnp.einsum("bnth,bnsh->bnts", q, k) * (size**-0.5 if scale is None else scale)
        scores = scores if softcap is None else softcap * jnp.tanh(scores / softcap)
        scores = scores if more is None else scores + jnp.where(more > -jnp.inf, more, 0)
        weights = jnp.where(every, jax.nn.softmax(scores, -1, where=every), 0)
        return jnp.einsum("bnts,bnsh->bnth", weights, v)

    return Trial(
        name,
        f"scale={scale}, softcap={softcap}, mask and bias: {[None if x is None else x.shape for x in (mask, bias)]}",
        call,
        inputs,
        reference,
        (dtype.name,),
        # A score of 40, say, is off by some units in its own last place, which its exponential multiplies.
        ulps=4.0 if dtype.itemsize == 2 else 60.0,
        magnitude=lambda q, k, v, *_: jnp.broadcast_to(jnp.max(abs(v)), (batch, heads, queries, values)),
    )
