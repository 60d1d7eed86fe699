"""Cases of what stands between products, where one helper function does it at once: norms and gates, quantised.

Numbers are powers of two, and those of a block share what they are multiplied by: no integer is near a half, so that
each device finds the same.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from lang_core import BLOCK, DType, bf16, f16, f32
from tests.emission._cases import Array, Case

_RNG_SEED: Final = 23
# Of scales in f32; of what is rounded before, for Vulkan leaves that out (IREE 3.13 drops the pair of conversions).
_ULPS: Final = {"f32": 8, "bf16": 2.0**16, "f16": 2.0**13}
_COLUMNS: Final = 3 * BLOCK


def _powers(*shape: int) -> Array:
    """Drawn numbers, in each block of them a one."""
    rng = np.random.default_rng(_RNG_SEED)
    x = rng.choice([0.0, 0.0625, 0.125, 0.25, 1.0], shape) * rng.choice([-1.0, 1.0], shape)
    x[..., ::BLOCK] = 1
    return x.astype(np.float32)


def _of_blocks(*numbers: float) -> Array:
    """[96]: a number for each block."""
    return np.repeat(np.array(numbers, np.float32), BLOCK)


def _centred(c: Any, x: Any, w: Any) -> Any:
    def body(x: Any, w: Any, eps: float) -> Any:
        normed = c.ops.rms_norm(c.ops.cast(x, "f32"), c.ops.add(c.ops.cast(w, "f32"), 1.0), eps)
        return c.ops.cast(normed, x.dtype)

    return c.ops.block_quantize(c.composite("zero_centred_rms_norm", body, (x, w), (1e-3,)))


def _normed(c: Any, x: Any, *w: Any) -> Any:
    return c.ops.block_quantize(c.ops.rms_norm(x, *w, eps=1e-3))


def _gated(c: Any, gate: Any, x: Any) -> Any:
    return c.ops.block_quantize(c.ops.mul(c.ops.silu(gate), x))


def _quantised(dtype: DType) -> Iterator[Case]:
    x = _powers(2, 3, _COLUMNS).astype(dtype.numpy)
    weight, offset = (_of_blocks(*numbers) for numbers in ((0.5, -2, 4), (-0.5, 0, 3)))
    name, ulps = f"norm_{dtype.name}", _ULPS[dtype.name]
    yield Case("block_quantize", f"block_quantize_of_plain_{name}", dtype, _normed, (x,), ulps)
    for kind in (f32, bf16):
        given = x, weight.astype(kind.numpy)
        yield Case("block_quantize", f"block_quantize_of_{kind.name}_{name}", dtype, _normed, given, ulps)
    given = x, offset.astype(dtype.numpy)
    yield Case("block_quantize", f"block_quantize_of_centred_{name}", dtype, _centred, given, ulps)
    gate = np.broadcast_to(_of_blocks(1.5, -3, 0.25), x.shape).astype(dtype.numpy)
    yield Case("block_quantize", f"block_quantize_of_silu_{dtype.name}", dtype, _gated, (gate, x), 2 * ulps)


def _attended(dtype: DType) -> Iterator[Case]:
    """Yields attention that sees one key, so that its values are the result."""
    q, k = (np.ones(shape, dtype.numpy) for shape in ((2, 2, 3, 1, 16), (2, 2, 20, 16)))
    v = _powers(2, 2, 20, 2 * BLOCK).astype(dtype.numpy)
    bias = np.full((1, 1, 20), -1e30, np.float32)
    bias[..., 17] = 0.5

    def fn(c: Any, *x: Any) -> Any:
        y = c.ops.transpose(c.ops.cached_attention(*x, 0.25), (0, 3, 1, 2, 4))
        return c.ops.block_quantize(c.ops.reshape(y, (2, 1, -1)))

    yield Case("cached_attention", f"cached_attention_blocks_{dtype.name}", dtype, fn, (q, k, v, bias), ulps=2)


BETWEEN_CASES: Final = tuple(
    case for dtype in (f32, bf16, f16) for make in (_quantised, _attended) for case in make(dtype)
)
