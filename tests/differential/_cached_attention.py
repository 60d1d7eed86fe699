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
    shapes = (batch, shared, group, queries, size), (batch, shared, keys, size), (batch, shared, keys, values)
    q, k, v = (rng.standard_normal(shape).astype(kind) for shape in shapes)
    bias = rng.standard_normal((draw(st.sampled_from((1, batch))), queries, keys)).astype(np.float32)
    bias[:, :, draw(st.integers(1, 4)) :] = -1e30
    scale = draw(st.sampled_from((0.125, 1.0, 0.3)))

    def reference(q: Any, k: Any, v: Any, bias: Any) -> Any:
        wide = (array.astype(jnp.float64) for array in (q, k, v, bias))
        q, k, v, bias = wide
        scores = jnp.einsum("bkgth,bksh->bkgts", q, k) * scale + bias[:, None, None]
        return jnp.einsum("bkgts,bksh->bkgth", nn.softmax(scores, axis=-1), v)

    return Trial(
        name,
        f"{scale}",
        lambda c, q, k, v, bias: c.ops.cached_attention(q, k, v, bias, scale),
        (q, k, v, bias),
        reference,
        (dtype,),
        ulps=32 if dtype == "f32" else 2,
        magnitude=lambda q, k, v, bias: jnp.broadcast_to(
            jnp.abs(v.astype(jnp.float64)).max(), (batch, shared, group, queries, values)
        ),
    )
