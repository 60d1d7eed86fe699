"""Cases of attention over a cache."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from lang_core import DType, bf16, f16, f32
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


def _beyond() -> Case:
    """Infinity and NaN among the values go through."""
    rng = np.random.default_rng(_RNG_SEED)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 1, 2, 1, 4), (1, 1, 3, 4), (1, 1, 3, 5)))
    v[0, 0, 1, 2], v[0, 0, 2, 4] = np.inf, np.nan
    bias = np.zeros((1, 1, 3), np.float32)
    return Case("cached_attention", "cached_attention_beyond", f32, _attended, (q, k, v, bias), ulps=64)


# What devices need not get right.
ATTENTION_BEYOND: Final = (_beyond(),)
ATTENTION_CASES: Final = tuple(case for dtype in (f32, bf16, f16) for case in _cases(dtype))
