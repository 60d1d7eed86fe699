"""Trials of block-quantised weights of stacked experts."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from lang_core import BLOCK
from lang_core.ops import LARGEST_INTEGER
from tests.differential._draw import generator
from tests.differential._packed import DRAWN_ENCODINGS, SHORT_DTYPES, drawn_blocks, drawn_x, quantized, unpacked
from tests.differential._trial import Array, Draw, Trial, trials


def _groups(draw: Draw, rng: np.random.Generator) -> tuple[int, int, Array]:
    """X, R and the experts i32 [G] of groups, some of them outside of 0 .. 2."""
    given, rows, sharing = draw(st.integers(1, 2)), draw(st.integers(0, 3)), draw(st.integers(0, 3))
    return given, rows, rng.integers(-1, 4, given * sharing).astype(np.int32)


def _grouped(x: Any, expert: Any, w: Any, of: Any) -> Any:
    """Products in f64 of groups [G, R, K] with experts' weights [3, N, K]."""
    if not len(expert):
        return jnp.zeros((0, x.shape[1], w.shape[1]))
    chosen = jnp.clip(expert, 0, len(w) - 1)
    groups = [x[i * len(x) // len(expert)] for i in range(len(expert))]
    return jnp.stack(
        [
            jnp.matmul(of(rows), of(w[number]).T, precision=lax.Precision.HIGHEST)
            for rows, number in zip(groups, chosen, strict=True)
        ]
    )


@trials("packed_expert_linear")
def _packed_expert_linear(draw: Draw, name: str) -> Trial:
    encoding, rng, dtype = draw(DRAWN_ENCODINGS), generator(draw), draw(st.sampled_from(SHORT_DTYPES))
    wanted, activations = draw(st.sampled_from([None, *SHORT_DTYPES])), draw(st.sampled_from(["exact", "q8"]))
    given, rows, expert = _groups(draw, rng)
    x = drawn_x(rng, (given, rows, encoding.block), dtype)
    weight = drawn_blocks(rng, (3, draw(st.integers(0, 4)), 1), encoding, wild=False)

    def product(x: Any, expert: Any, w: Any, of: Any) -> Any:
        if activations == "q8":
            q, scale = quantized(x, 8)
            x = (q * scale).reshape(x.shape)
        return _grouped(x, expert, unpacked(w, encoding), of)

    result = dtype if wanted is None else wanted
    return Trial(
        name,
        f"{encoding.name}, {wanted}, {activations}",
        lambda c, x, e, w: c.ops.packed_expert_linear(x, e, w, encoding, wanted, activations),
        (x, expert, weight),
        lambda x, e, w: product(x, e, w, lambda kind: kind),
        (result.name,),
        ulps=3,
        magnitude=lambda x, e, w: product(x, e, w, jnp.abs),
    )


@trials("expert_block_product")
def _expert_block_product(draw: Draw, name: str) -> Trial:
    encoding, rng, bits = draw(DRAWN_ENCODINGS), generator(draw), draw(st.sampled_from(sorted(LARGEST_INTEGER)))
    given, rows, expert = _groups(draw, rng)
    planes = rng.integers(-127, 128, (given, rows, bits // 8, encoding.block)).astype(np.int8)
    scale = rng.normal(0, 1, (given, rows, encoding.block // BLOCK)).astype(np.float32)
    weight = drawn_blocks(rng, (3, draw(st.integers(0, 4)), 1), encoding, wild=False)

    def product(planes: Any, scale: Any, expert: Any, w: Any, of: Any) -> Any:
        digits = planes.astype(jnp.float64)
        q = digits[..., 0, :] if bits == 8 else 255 * digits[..., 0, :] + digits[..., 1, :]
        x = (q.reshape(*scale.shape, BLOCK) * scale[..., None]).reshape(q.shape)
        return _grouped(x, expert, unpacked(w, encoding), of)

    total = planes[..., 0, :].reshape(*scale.shape, BLOCK).sum(axis=-1, dtype=np.int32)  # the eager rule needs none
    return Trial(
        name,
        f"{encoding.name}, {bits} bits",
        lambda c, p, s, t, e, w: c.ops.expert_block_product((p, s, t), e, w, encoding),
        (planes, scale, total, expert, weight),
        lambda p, s, t, e, w: product(p, s, e, w, lambda kind: kind),
        ("f32",),
        ulps=3,
        magnitude=lambda p, s, t, e, w: product(p, s, e, w, jnp.abs),
    )
