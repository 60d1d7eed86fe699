"""Trials of attention over a cache."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import nn

from tests.differential._draw import generator
from tests.differential._trial import Draw, Trial, trials


@trials("cached_attention")
def _cached_attention(draw: Draw, name: str) -> Trial:
    rng, dtype = generator(draw), draw(st.sampled_from(("f32", "bf16", "f16")))
    batch, shared, group, queries, size, keys, values = (draw(st.integers(1, 4)) for _ in range(7))
    kind: Any = {"f32": np.float32, "bf16": jnp.bfloat16, "f16": np.float16}[dtype]
    cached = draw(st.sampled_from((0, *range(1, 6))))
    stored = cached or batch
    shapes = (batch, shared, group, queries, size), (stored, shared, keys, size), (stored, shared, keys, values)
    q, k, v = (rng.standard_normal(shape).astype(kind) for shape in shapes)
    pages = draw(st.integers(1, 3)) if cached else 1
    bias = rng.standard_normal((draw(st.sampled_from((1, batch))), queries, pages * keys)).astype(np.float32)
    bias[:, :, draw(st.integers(1, 4)) :] = -1e30
    scale = draw(st.sampled_from((0.125, 1.0, 0.3)))
    chosen = (batch, pages) if pages > 1 else (batch,)
    rows = (rng.integers(-1, cached + 1, chosen).astype(np.int32),) if cached else ()

    def reference(q: Any, k: Any, v: Any, bias: Any, *rows: Any) -> Any:
        for row in rows:
            k, v = (array[jnp.clip(row, 0, cached - 1)] for array in (k, v))
            if pages > 1:
                k, v = (jnp.concatenate([array[:, page] for page in range(pages)], axis=2) for array in (k, v))
        wide = (array.astype(jnp.float64) for array in (q, k, v, bias))
        q, k, v, bias = wide
        scores = jnp.einsum("bkgth,bksh->bkgts", q, k) * scale + bias[:, None, None]
        return jnp.einsum("bkgts,bksh->bkgth", nn.softmax(scores, axis=-1), v)

    return Trial(
        name,
        f"{scale} of {cached} by {pages}",
        lambda c, q, k, v, bias, *rows: c.ops.cached_attention(q, k, v, bias, scale, *rows),
        (q, k, v, bias, *rows),
        reference,
        (dtype,),
        ulps=32 if dtype == "f32" else 2,
        magnitude=lambda q, k, v, bias, *rows: jnp.broadcast_to(
            jnp.abs(v.astype(jnp.float64)).max(), (batch, shared, group, queries, values)
        ),
    )
