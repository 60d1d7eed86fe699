"""Cases of attention over a cache."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from lang_core import BLOCK, ENCODINGS, DType, Encoding, bf16, f16, f32
from lang_core.ops import CACHE_ENCODINGS
from tests.emission._cases import Case

_RNG_SEED: Final = 22
_ULPS: Final = {"f32": 64.0, "bf16": 4.0, "f16": 4.0}


def _attended(ctx: Any, q: Any, k: Any, v: Any, bias: Any, *rows: Any) -> Any:
    return ctx.ops.cached_attention(q, k, v, bias, 0.25, *rows)


def _cases(dtype: DType) -> Iterator[Case]:
    rng = np.random.default_rng(_RNG_SEED)
    # (B, K, G, T, H, S, H', rows of the bias)
    for name, sizes in (("one", (1, 2, 3, 1, 16, 20, 32, 1)), ("several", (2, 1, 2, 3, 8, 5, 4, 2))):
        batch, shared, group, queries, size, keys, values, rows = sizes
        shapes = (batch, shared, group, queries, size), (batch, shared, keys, size), (batch, shared, keys, values)
        q, k, v = (rng.standard_normal(shape).astype(dtype.numpy) for shape in shapes)
        bias = rng.standard_normal((rows, queries, keys)).astype(np.float32)
        bias[:, :, 3:5] = -1e30
        case, ulps = f"cached_attention_{name}_{dtype.name}", _ULPS[dtype.name]
        yield Case("cached_attention", case, dtype, _attended, (q, k, v, bias), ulps=ulps)
        k, v = (np.concatenate([x, rng.standard_normal((2, *x.shape[1:])).astype(dtype.numpy)]) for x in (k, v))
        chosen = np.array([[-1], [3, 1]][batch - 1], np.int32)
        case = f"cached_attention_of_rows_{name}_{dtype.name}"
        yield Case("cached_attention", case, dtype, _attended, (q, k, v, bias, chosen), ulps=ulps)
        pages = np.array([[[2, -1]], [[3, 1], [0, 9]]][batch - 1], np.int32)
        over = np.concatenate([bias, bias], axis=2)
        case = f"cached_attention_of_pages_{name}_{dtype.name}"
        yield Case("cached_attention", case, dtype, _attended, (q, k, v, over, pages), ulps=ulps)


def _packed_cases(encoding: Encoding, dtype: DType) -> Iterator[Case]:
    rng, name = np.random.default_rng(_RNG_SEED), f"{encoding.name}_{dtype.name}"
    x = rng.standard_normal((3, 5, 2 * BLOCK)).astype(np.float32)
    x[0, 0, :BLOCK], x[1, 1, :BLOCK], x[2, 4, BLOCK:] = 0, 2.0**-140, -x[2, 4, BLOCK:]
    x[0, 1, 3], x[0, 1, 7], x[0, 2, 9], x[0, 2, 4] = 9, -9, 9, -9  # the first of two decides the sign of the scale
    yield Case(
        "quantize", f"quantize_{name}", dtype, lambda c, x: c.ops.quantize(x, encoding), (x.astype(dtype.numpy),)
    )

    def fn(c: Any, q: Any, k: Any, v: Any, bias: Any, *rows: Any) -> Any:
        return c.ops.packed_cached_attention(q, k, v, bias, 0.25, encoding, *rows)

    # (B, K, G, T, H, S, H', rows of the bias, rows of the caches)
    for kind, sizes in (("one", (1, 2, 3, 1, 32, 20, 64, 1, 3)), ("several", (2, 1, 2, 3, 64, 5, 32, 2, 5))):
        batch, shared, group, queries, size, keys, values, biases, stored = sizes
        q = rng.standard_normal((batch, shared, group, queries, size)).astype(dtype.numpy)
        k, v = (
            encoding.pack(rng.standard_normal((stored, shared, keys, width)).astype(np.float32))
            for width in (size, values)
        )
        bias = rng.standard_normal((biases, queries, keys)).astype(np.float32)
        bias[:, :, 3:5] = -1e30
        rows = np.array([[-1], [3, 1]][batch - 1], np.int32)
        pages = np.array([[[2, -1]], [[3, 1], [0, 9]]][batch - 1], np.int32)
        given = {
            "plain": (q, k[:batch], v[:batch], bias),
            "rows": (q, k, v, bias, rows),
            "pages": (q, k, v, np.concatenate([bias, bias], axis=2), pages),
        }
        for form, arrays in given.items():
            case = f"packed_cached_attention_{form}_{kind}_{name}"
            yield Case("packed_cached_attention", case, dtype, fn, arrays, ulps=_ULPS[dtype.name])


def _packed_beyond(encoding: Encoding) -> Case:
    """Blocks with a number that is not finite, or beyond a scale of f16, have a scale that is NaN."""
    x = np.random.default_rng(_RNG_SEED).standard_normal((5, BLOCK)).astype(np.float32)
    x[0, 3], x[1, 4], x[2, 5], x[3] = np.inf, np.nan, -np.inf, x[3] * 1e8
    return Case("quantize", f"quantize_beyond_{encoding.name}", f32, lambda c, x: c.ops.quantize(x, encoding), (x,))


def _beyond() -> Case:
    """Infinity and NaN among the values go through."""
    rng = np.random.default_rng(_RNG_SEED)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 1, 2, 1, 4), (1, 1, 3, 4), (1, 1, 3, 5)))
    v[0, 0, 1, 2], v[0, 0, 2, 4] = np.inf, np.nan
    bias = np.zeros((1, 1, 3), np.float32)
    return Case("cached_attention", "cached_attention_beyond", f32, _attended, (q, k, v, bias), ulps=64)


_ENCODINGS: Final = tuple(ENCODINGS[name] for name in CACHE_ENCODINGS)
# What devices need not get right.
ATTENTION_BEYOND: Final = (_beyond(), *(_packed_beyond(encoding) for encoding in _ENCODINGS))
ATTENTION_CASES: Final = (
    *(case for dtype in (f32, bf16, f16) for case in _cases(dtype)),
    *(case for dtype in (f32, bf16, f16) for encoding in _ENCODINGS for case in _packed_cases(encoding, dtype)),
)
