"""Trials of quantized caches."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import nn

from lang_core import BLOCK, ENCODINGS, as_dtype
from lang_core.ops import CACHE_ENCODINGS
from tests.differential._draw import generator, shape_of
from tests.differential._packed import SHORT_DTYPES, unpacked
from tests.differential._trial import Draw, Trial, trials

_TIE = 1e-3


@trials("quantize")
def _quantize(draw: Draw, name: str) -> Trial:
    """Packs and unpacks: integers are nearest, of a scale that is rounded to f16 after they are chosen."""
    encoding, dtype = ENCODINGS[draw(st.sampled_from(CACHE_ENCODINGS))], draw(st.sampled_from(SHORT_DTYPES))
    rng = generator(draw)
    blocks = (*shape_of(draw, draw(st.integers(0, 2)), most=3), draw(st.integers(1, 3)))
    result = (*blocks[:-1], BLOCK * blocks[-1])
    x = rng.standard_normal((*blocks, BLOCK)) * 2.0 ** rng.integers(-6, 9, (*blocks, 1))
    x = (x * (rng.random((*blocks, 1)) < 0.8)).astype(dtype.numpy).astype(np.float64)
    signed = encoding.bits < 8

    def scales(x: Any, xp: Any) -> Any:
        if not signed:
            return xp.abs(x).max(axis=-1, keepdims=True) / 127
        place = xp.argmax(xp.abs(x), axis=-1)[..., None]
        return xp.take_along_axis(x, place, axis=-1) / -8

    scale = scales(x, np)
    quotient = x / np.where(scale == 0, 1, scale)
    x[np.abs(quotient % 1 - 0.5) < _TIE] = 0

    def reference(x: Any) -> Any:
        x = x.reshape(*blocks, BLOCK)
        scale = scales(x, jnp)
        q = jnp.round(x / jnp.where(scale == 0, 1, scale))
        q = jnp.minimum(q, 7) if signed else q
        return (q * scale.astype(jnp.float32).astype(jnp.float16)).reshape(result)

    x = x.astype(dtype.numpy).reshape(result)
    fn = lambda c, x: c.ops.dequantize(c.ops.quantize(x, encoding), encoding)  # noqa: E731
    return Trial(name, f"{encoding.name} of {dtype.name}", fn, (x,), reference, ("f32",), ulps=1)


@trials("packed_cached_attention")
def _packed_cached_attention(draw: Draw, name: str) -> Trial:
    encoding, dtype = ENCODINGS[draw(st.sampled_from(CACHE_ENCODINGS))], draw(st.sampled_from(("f32", "bf16", "f16")))
    rng = generator(draw)
    batch, shared, group, queries, keys = (draw(st.integers(1, 4)) for _ in range(5))
    size, values = (BLOCK * draw(st.integers(1, 2)) for _ in range(2))
    cached = draw(st.sampled_from((0, *range(1, 6))))
    pages = draw(st.integers(1, 3)) if cached else 1
    q = rng.standard_normal((batch, shared, group, queries, size)).astype(as_dtype(dtype).numpy)
    k, v = (
        encoding.pack(rng.standard_normal((cached or batch, shared, keys, width)).astype(np.float32))
        for width in (size, values)
    )
    bias = rng.standard_normal((draw(st.sampled_from((1, batch))), queries, pages * keys)).astype(np.float32)
    bias[:, :, draw(st.integers(1, 4)) :] = -1e30
    chosen = (batch, pages) if pages > 1 else (batch,)
    rows = (rng.integers(-1, cached + 1, chosen).astype(np.int32),) if cached else ()

    def taken(packed: Any, *rows: Any) -> Any:
        whole = unpacked(packed, encoding)
        for row in rows:
            whole = whole[jnp.clip(row, 0, cached - 1)]
            if pages > 1:
                whole = jnp.concatenate([whole[:, page] for page in range(pages)], axis=2)
        return whole

    def reference(q: Any, k: Any, v: Any, bias: Any, *rows: Any) -> Any:
        q, k, v, bias = (array.astype(jnp.float64) for array in (q, taken(k, *rows), taken(v, *rows), bias))
        scores = jnp.einsum("bkgth,bksh->bkgts", q, k) * 0.3 + bias[:, None, None]
        return jnp.einsum("bkgts,bksh->bkgth", nn.softmax(scores, axis=-1), v)

    return Trial(
        name,
        f"{encoding.name} of {cached} by {pages}",
        lambda c, q, k, v, bias, *rows: c.ops.packed_cached_attention(q, k, v, bias, 0.3, encoding, *rows),
        (q, k, v, bias, *rows),
        reference,
        (dtype,),
        ulps=64 if dtype == "f32" else 2,
        magnitude=lambda q, k, v, bias, *rows: jnp.broadcast_to(
            jnp.abs(unpacked(v, encoding)).max(), (batch, shared, group, queries, values)
        ),
    )
