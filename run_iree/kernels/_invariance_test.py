"""A token's results are the same bits however many tokens are computed beside it, and whichever these are.

By default each set of kernels has two encodings of packed weights and a dtype of plain products, and each dtype a part
of the functions between products. With TAPELINE_LONG=1 in the environment every set has every encoding, form of x and
dtype, and every dtype every function.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import (
    BLOCK,
    ENCODINGS,
    Activations,
    ExecutionContext,
    Tensor,
)
from run_iree.kernels import CpuKernels
from run_iree.kernels._invariance_testing import (
    FORMS,
    HERE,
    LONG,
    NO_AVX2,
    SETS,
    TokenCase,
    check_tokens,
    drawn,
    packed_product,
)

_KERNELS = [pytest.param(kernels, id=name, marks=NO_AVX2) for name, kernels in SETS.items()]
_SEED = 29
# Numbers of tokens: few, a tile, such that fill no tile, a prefill's.
_COUNTS = (1, 2, 3, 8, 9, 17, 32)


def _sampled() -> list[Any]:
    """Returns sets of kernels with (encoding, form of x) each: by default two drawn encodings, one in each form."""
    encodings = random.Random(_SEED).sample(list(ENCODINGS), 6)
    turns = [list(zip(encodings[place::3], FORMS, strict=True)) for place in range(3)]
    if not LONG:
        print(f"encodings drawn with seed {_SEED}: {turns}; TAPELINE_LONG=1 runs all")
    chosen = [list(itertools.product(ENCODINGS, FORMS))] * 3 if LONG else turns
    return [
        pytest.param(*set_.values, products, id=set_.id, marks=set_.marks)
        for set_, products in zip(_KERNELS, chosen, strict=True)
    ]


@pytest.mark.parametrize(("kernels", "products"), _sampled())
def test_products_with_packed_weights(kernels: CpuKernels, products: Sequence[tuple[str, Activations]], tmp_path: Path):
    # Whole steps and such that end with a step that begins early, where the set has those.
    counts = (1, 2, 9, 17)
    cases = {
        f"{encoding}_{how}": packed_product(encoding, columns, how, max(counts))
        for encoding, how in products
        for columns in [768 if ENCODINGS[encoding].block > BLOCK else 576]
    }
    used = check_tokens(cases, kernels, tmp_path, counts)
    for encoding in {encoding for encoding, _ in products}:
        names = {name for function, name in used.items() if function.startswith(f"packed_linear.{encoding}.")}
        assert {name.partition("-")[2] for name in names} == {"matvec", "few-tokens"}


def _products() -> list[Any]:
    """Returns sets of kernels with dtypes: by default one dtype for each set, in turn."""
    pairs = list(zip(_KERNELS, ("bf16", "f16", "f32"), strict=True))
    return [
        pytest.param(*set_.values, dtype, id=f"{set_.id}-{dtype}", marks=set_.marks)
        for set_, dtype in (itertools.product(_KERNELS, ("bf16", "f16", "f32")) if LONG else pairs)
    ]


@pytest.mark.parametrize(("kernels", "dtype"), _products())
def test_products(kernels: CpuKernels, dtype: str, tmp_path: Path):
    tokens = max(_COUNTS)
    cases = {
        str(columns): TokenCase(
            lambda ctx, x, w: ctx.ops.linear(x, w),
            [drawn(tokens, columns, dtype=dtype)],
            [drawn(37, columns, dtype=dtype)],
        )
        for columns in (576, 96)
    }
    used = check_tokens(cases, kernels, tmp_path, (1, 2, 9, 17))
    assert {name.partition("-")[2] for name in used.values()} <= {
        "matvec",
        "few-tokens",
        "bf16-matvec",
        "bf16-few-tokens",
    }


def _attention(group: int, size: int, dtype: str, *, blocks: bool) -> TokenCase:
    """Returns attention of tokens that see so many of the keys of a row each, perhaps in blocks."""
    tokens, shared, keys, row = max(_COUNTS), 2, 40, 1

    def fn(ctx: ExecutionContext, q: Tensor, bias: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ops = ctx.ops
        rows = ops.constant(np.full(q.shape[0], row, np.int32))
        heads = ops.cached_attention(ops.transpose(q, (0, 2, 3, 1, 4)), k, v, bias, 0.2, rows)
        y = ops.reshape(ops.transpose(heads, (0, 3, 1, 2, 4)), (*q.shape[:2], -1))
        return ops.block_quantize(y)[0] if blocks else y

    bias = drawn(tokens, keys)
    for token in range(tokens):
        bias[token, 1 + token :] = -1e30
    cached = [drawn(3, shared, keys, size, dtype=dtype), drawn(3, shared, keys, 32, dtype=dtype)]
    return TokenCase(fn, [drawn(tokens, shared, group, size, dtype=dtype), bias], cached)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_attention(dtype: str, tmp_path: Path):
    cases = {
        f"{group}_{size}_{blocks}": _attention(group, size, dtype, blocks=blocks)
        for group, size, blocks in ((3, 48, True), (1, 64, False), (9, 32, False))[
            : 3 if LONG else 2 if dtype == "f32" else 1
        ]
    }
    used = check_tokens(cases, HERE, tmp_path, (1, 9, 32))
    assert "vector-cached-attention" in used.values()
    assert any(name.startswith("cached_attention_quantize.") for name in used)


def _turned(ctx: ExecutionContext, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates heads [B, T, N, H] as RoPE does."""
    ops = ctx.ops
    low, high = ops.split(x, (32, 32), 3)
    return ops.add(ops.mul(x, cos), ops.mul(ops.concat([ops.negate(high), low], 3), sin))


# Ops between products: kernels that norms and gates are quantised by, and the compiler's own code.
_BETWEEN: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]], list[tuple[int, ...]]]] = {
    "rms_norm": (lambda c, x, w: c.ops.rms_norm(x, w), [(576,)], [(576,)]),
    "norm_of_sum": (lambda c, x, y, w: c.ops.rms_norm(c.ops.add(x, y), w), [(2048,), (2048,)], [(2048,)]),
    "norm_of_heads": (lambda c, x, w: c.ops.rms_norm(x, w), [(3, 64)], [(64,)]),
    "layer_norm": (lambda c, x, w, b: c.ops.layer_norm(x, w, b), [(768,)], [(768,), (768,)]),
    "softmax": (lambda c, x: c.ops.softmax(x), [(577,)], []),
    "argmax": (lambda c, x: c.ops.argmax(x, -1), [(4099,)], []),
    "silu": (lambda c, x, y: c.ops.mul(c.ops.silu(x), y), [(192,), (192,)], []),
    "gelu": (lambda c, x: c.ops.gelu(x), [(192,)], []),
    "rope": (_turned, [(3, 64), (1, 64), (1, 64)], []),
    "norm_in_blocks": (lambda c, x, w: c.ops.block_quantize(c.ops.rms_norm(x, w))[0], [(576,)], [(576,)]),
    "gate_in_blocks": (
        lambda c, x, y: c.ops.block_quantize(c.ops.mul(c.ops.silu(x), y))[1],
        [(192,), (192,)],
        [],
    ),
}


# Functions that the default run has in each dtype; in f32 it has the compiler's own code too.
_OF_KERNELS = {
    "f32": ("rms_norm", "layer_norm", "softmax", "argmax", "norm_in_blocks", "gate_in_blocks"),
    "bf16": ("norm_of_sum", "rope", "norm_in_blocks"),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_lies_between_products(dtype: str, tmp_path: Path):
    cases = {
        name: TokenCase(
            fn,
            [drawn(32, *shape, dtype=dtype) for shape in tokens],
            [drawn(*shape, dtype=dtype) for shape in parameters],
        )
        for name, (fn, tokens, parameters) in _BETWEEN.items()
        if LONG or name in _OF_KERNELS[dtype]
    }
    check_tokens(cases, HERE, tmp_path, (1, 9, 32))


@pytest.mark.parametrize("kernels", _KERNELS if LONG else _KERNELS[-1:])
def test_products_of_rows_that_are_longer_than_what_the_stack_takes_of_x(kernels: CpuKernels, tmp_path: Path):
    cases = {name: packed_product(name, 28672, "exact", 3) for name in ("q4_0", "q6_k")}
    check_tokens(cases, kernels, tmp_path, (1, 3))
