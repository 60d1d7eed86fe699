"""Cases of block-quantised weights."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from lang_core import BLOCK, ENCODINGS, Encoding, bf16, f16, f32
from tests.emission._cases import Array, Case

_RNG_SEED: Final = 21
# Of scales: the smallest and largest with and without an exponent, both zeros, neighbours of powers of two.
_HALVES: Final = (0, 1, 2, 3, 0x3FF, 0x400, 0x401, 0x7FF, 0x800, 0x3BFF, 0x3C00, 0x3C01, 0x5555, 0x7BFE, 0x7BFF)
_BEYOND: Final = (0x7C00, 0x7C01, 0x7E00, 0x7FFF)  # infinity and NaN
_EXPONENTS: Final = (118, 125)  # of powers of two that stand in the place of an f16
# Encodings whose products with experts are tried in every shape.
_GROUPED: Final = ("q8_0", "q4_k")


def packed_blocks(encoding: Encoding, scales: Array, stored: int | None = None) -> Array:
    """i8 [.., bytes] of drawn integers, one block for each f16 of the last axis; all of a number where it is given."""
    rng = np.random.default_rng(_RNG_SEED)
    blocks = rng.integers(0, 256, (*scales.shape, encoding.block_bytes)).astype(np.uint8)
    if stored is not None:
        blocks[:] = stored
    for number, place in enumerate(encoding.layout.halves):
        halves = np.ascontiguousarray(np.roll(scales, number))
        blocks[..., place : place + 2] = halves.view(np.uint8).reshape(*scales.shape, 2)
    if encoding.layout.exponent:
        blocks[..., encoding.layout.scale] = rng.integers(*_EXPONENTS, scales.shape)
    return blocks.reshape(*scales.shape[:-1], -1).view(np.int8)


def _quantize_cases() -> Iterator[Case]:
    rng = np.random.default_rng(_RNG_SEED)
    for dtype in (f32, bf16, f16):
        x = rng.standard_normal((2, 3, 2 * BLOCK)).astype(np.float32)
        x[0, 0, :BLOCK], x[0, 1, :BLOCK], x[1, 2, BLOCK:] = 0, -0.0, 2.0**-110
        x[1, 0] *= 1000
        for bits in (8, 16):
            fn = lambda c, x, bits=bits: c.ops.block_quantize(x, bits)  # noqa: E731
            name = f"block_quantize_{dtype.name}_{bits}"
            yield Case("block_quantize", name, dtype, fn, (x.astype(dtype.numpy),), ulps=2)


def _encoded_cases(encoding: Encoding) -> Iterator[Case]:
    rng, name = np.random.default_rng(_RNG_SEED), encoding.name
    scales = (rng.standard_normal((5, 3)) / 16).astype(np.float16)
    weight = packed_blocks(encoding, scales)
    x = rng.standard_normal((2, 1, 3 * encoding.block)).astype(np.float32)
    exact = lambda c, x, w: c.ops.packed_linear(x, w, encoding)  # noqa: E731
    yield Case("packed_linear", f"packed_linear_{name}_exact", f32, exact, (x, weight), ulps=4096)
    blocks = lambda c, x, w: c.ops.block_product(c.ops.block_quantize(x), w, encoding)  # noqa: E731
    yield Case("block_product", f"block_product_{name}", f32, blocks, (x, weight), ulps=64)
    product = lambda c, x, w: c.ops.packed_linear(x, w, encoding, activations="q8")  # noqa: E731
    yield Case("packed_linear", f"packed_linear_{name}", f32, product, (x, weight), ulps=64)
    for dtype in (bf16, f16):
        given = (x.astype(dtype.numpy), weight)
        yield Case("packed_linear", f"packed_linear_{name}_{dtype.name}", dtype, product, given, ulps=2)
    line = lambda c, x, w: c.ops.packed_linear(c.ops.reshape(x, (-1,)), w, encoding, activations="q8")  # noqa: E731
    yield Case("packed_linear", f"packed_linear_one_row_{name}", f32, line, (x[0, 0], weight), ulps=64)
    halves = np.array([[*_HALVES, *(bits | 0x8000 for bits in _HALVES)]], np.uint16).view(np.float16)
    packed: tuple[Any, ...] = (packed_blocks(encoding, halves.T),)
    for dtype in (f32, bf16):
        fn = lambda c, w, d=dtype: c.ops.dequantize(w, encoding, d)  # noqa: E731
        yield Case("dequantize", f"dequantize_{name}_{dtype.name}", dtype, fn, packed)
    beyond = np.array([_BEYOND, [bits | 0x8000 for bits in _BEYOND]], np.uint16).view(np.float16)
    fn = lambda c, w: c.ops.dequantize(w, encoding)  # noqa: E731
    yield Case("dequantize", f"dequantize_beyond_{name}", f32, fn, (packed_blocks(encoding, beyond),))


def _expert_cases(encoding: Encoding) -> Iterator[Case]:
    """Groups that share x or have their own, several rows of a group, experts outside."""
    rng, name, experts = np.random.default_rng(_RNG_SEED), encoding.name, 3
    scales = (rng.standard_normal((experts, 5, 2)) / 16).astype(np.float16)
    weight = packed_blocks(encoding, scales)
    chosen = np.array([2, 0, 7, -1], np.int32)
    product = lambda c, x, e, w: c.ops.packed_expert_linear(x, e, w, encoding, activations="q8")  # noqa: E731
    xs = {
        given: rng.standard_normal((given, rows, 2 * encoding.block)).astype(np.float32)
        for given, rows in ((1, 1), (2, 1), (4, 3))
    }
    for given in xs if name in _GROUPED else (2,):
        case = f"packed_expert_linear_{name}_{given}"
        yield Case("packed_expert_linear", case, f32, product, (xs[given], chosen, weight), ulps=1024)
    if name not in _GROUPED:
        return
    short = (xs[4].astype(bf16.numpy), chosen, weight)
    yield Case("packed_expert_linear", f"packed_expert_linear_{name}_bf16", bf16, product, short, ulps=2)
    blocks = lambda c, x, e, w: c.ops.expert_block_product(c.ops.block_quantize(x), e, w, encoding)  # noqa: E731
    yield Case("expert_block_product", f"expert_block_product_{name}", f32, blocks, (xs[4], chosen, weight), ulps=1024)


def _beyond_cases() -> Iterator[Case]:
    """Infinity and NaN go through; integers of such blocks are unspecified. Exponents go below f32's normal numbers."""
    x = np.ones((2, 2 * BLOCK), np.float32)
    x[0, 3], x[1, 40] = np.inf, np.nan
    yield Case("block_quantize", "block_quantize_beyond", f32, lambda c, x: c.ops.block_quantize(x)[1], (x,))
    for encoding in ENCODINGS.values():
        scales = np.array([[np.inf], [np.nan], [1.0]], np.float16)
        weight = packed_blocks(encoding, scales, 0x99 if encoding.name == "q4_0" else 0x11)
        fn = lambda c, x, w, e=encoding: c.ops.packed_linear(x, w, e)  # noqa: E731
        row = np.ones((1, encoding.block), np.float32)
        name = f"packed_linear_beyond_{encoding.name}"
        yield Case("packed_linear", name, f32, fn, (row, weight), ulps=4)
        if encoding.layout.exponent:
            every = packed_blocks(encoding, np.ones((256, 1), np.float16))
            every[:, encoding.layout.scale] = np.arange(256).astype(np.uint8).view(np.int8)
            fn = lambda c, w, e=encoding: c.ops.dequantize(w, e)  # noqa: E731
            yield Case("dequantize", f"dequantize_every_exponent_{encoding.name}", f32, fn, (every,))


def _looped(c: Any, x: Any, w: Any) -> Any:
    """Multiplies twice in a loop, and once in a branch, by one x and by what comes of it."""
    encoding = ENCODINGS["q4_0"]

    def step(i: Any, x: Any) -> Any:
        y = c.ops.add(c.ops.packed_linear(x, w, encoding), c.ops.packed_linear(x, w, encoding, activations="q8"))
        return c.ops.add(i, 1), c.ops.mul(y, 0.125)

    _, y = c.ops.while_loop(lambda i, x: c.ops.less(i, 2), step, (c.constant(0, "i32"), x))
    (z,) = c.ops.cond(
        c.ops.less(0.0, c.ops.sum(c.ops.abs(x))), lambda y: (c.ops.packed_linear(y, w, encoding),), lambda y: (y,), (y,)
    )
    return z


def _loop_cases() -> Iterator[Case]:
    rng = np.random.default_rng(_RNG_SEED)
    weight = ENCODINGS["q4_0"].pack(rng.standard_normal((64, 64)).astype(np.float32))
    x = rng.standard_normal((3, 64)).astype(np.float32)
    yield Case("packed_linear", "packed_linear_in_a_loop", f32, _looped, (x, weight), ulps=1 << 17)


# What devices need not get right.
BEYOND_CASES: Final = tuple(_beyond_cases())
PACKED_CASES: Final = (
    *_quantize_cases(),
    *_loop_cases(),
    *(case for encoding in ENCODINGS.values() for case in _encoded_cases(encoding)),
    *(case for encoding in ENCODINGS.values() for case in _expert_cases(encoding)),
)
