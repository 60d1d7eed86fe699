"""A token's results are the same bits however many tokens are computed beside it, and whichever these are."""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import (
    BLOCK,
    ENCODINGS,
    Activations,
    Argument,
    EagerExecutionContext,
    EntryPoint,
    ExecutionContext,
    Tensor,
    TensorSpec,
    as_dtype,
)
from run_iree import Session, host_cpu
from run_iree.kernels import CpuKernels
from run_iree.kernels._spelled_testing import compile_spelled

_Array = np.ndarray[Any, Any]
_HERE = CpuKernels.of(host_cpu().features)
_SETS = {
    "vnni": CpuKernels(vnni=True, bf16=True, avx512=True, fma=True),
    "avx512": CpuKernels(avx512=True, fma=True),
    "fma": CpuKernels(fma=True),
}
_LONG = bool(os.environ.get("TAPELINE_LONG"))
_NO_AVX2 = pytest.mark.skipif(not _HERE.fma, reason="this CPU has no AVX2")
_KERNELS = [pytest.param(kernels, id=name, marks=_NO_AVX2) for name, kernels in _SETS.items()]
# Numbers of tokens: few, a tile, such that fill no tile, a prefill's.
_COUNTS = (1, 2, 3, 8, 9, 17, 32)


@dataclass(frozen=True)
class _Case:
    """Function of tokens, [B, T, ..] each, and of parameters.

    Attributes:
        fn: the function.
        tokens: arrays with the numbers of all tokens, by the first axis.
        parameters: other operands.
    """

    fn: Callable[..., Tensor]
    tokens: Sequence[_Array]
    parameters: Sequence[_Array] = ()


def _entry_point(name: str, case: _Case, shape: tuple[int, int]) -> EntryPoint:
    def fn(ctx: ExecutionContext, *given: Tensor) -> dict[str, Tensor]:
        return {"y": case.fn(ctx, *given)}

    tokens = [TensorSpec((*shape, *array.shape[1:]), as_dtype(array.dtype)) for array in case.tokens]
    others = [TensorSpec(array.shape, as_dtype(array.dtype)) for array in case.parameters]
    arguments = tuple(Argument(f"x{i}", spec) for i, spec in enumerate([*tokens, *others]))
    return EntryPoint(name, fn, arguments, batch_invariant=True)


def _shapes(count: int) -> list[tuple[int, int]]:
    """Returns how so many tokens stand in a batch: one sequence, as in a prefill, or each its own, as in a decode."""
    return {1: [(1, 1)], 2: [(2, 1), (1, 2)], 9: [(9, 1)], 32: [(32, 1), (1, 32)]}.get(count, [(1, count)])


def _check(
    cases: Mapping[str, _Case], kernels: CpuKernels, folder: Path, counts: Sequence[int] = _COUNTS, near: float = 0
) -> dict[str, str]:
    """Compares each token's results among others with those alone, and with the eager op; returns the kernels."""
    module, compiled = folder / "module.mlir", folder / "module.vmfb"
    points = {
        f"{name}_{batch}_{tokens}": _entry_point(f"{name}_{batch}_{tokens}", case, (batch, tokens))
        for name, case in cases.items()
        for count in counts
        for batch, tokens in _shapes(count)
    }
    with module.open("w") as file:
        lower_module(list(points.values()), file.write, ExternalParameters())
    report = compile_spelled(module, compiled, kernels)
    with Session(compiled, "local-task") as session:

        def run(name: str, case: _Case, shape: tuple[int, int], chosen: _Array) -> _Array:
            given = [array[chosen].reshape(*shape, *array.shape[1:]) for array in case.tokens]
            (y,) = session.function(f"{name}_{shape[0]}_{shape[1]}")(*given, *case.parameters)
            return y.numpy().reshape(len(chosen), -1).copy()

        for name, case in cases.items():
            numbers = np.arange(max(counts))
            alone = np.concatenate([run(name, case, (1, 1), numbers[i : i + 1]) for i in numbers])
            if near:
                wanted = case.fn(ctx := EagerExecutionContext(), *map(ctx.constant, [*case.tokens, *case.parameters]))
                np.testing.assert_allclose(alone, wanted.numpy().reshape(alone.shape), rtol=0, atol=near)
            for count in counts[1:]:
                for shape in _shapes(count):
                    for chosen in (numbers[:count], numbers[::-1][:count]):
                        made = run(name, case, shape, chosen)
                        assert made.tobytes() == alone[chosen].tobytes(), f"{name} {shape} from {chosen[0]} on"
    return dict(report.kernels)


def _drawn(*shape: int, dtype: str = "f32") -> _Array:
    return np.random.default_rng(shape[-1]).standard_normal(shape).astype(as_dtype(dtype).numpy)


def _bytes_of(encoding: str, outputs: int, columns: int) -> _Array:
    """Returns a weight of drawn bytes whose scales are of a size."""
    layout, kind = ENCODINGS[encoding].layout, ENCODINGS[encoding]
    rng = np.random.default_rng(columns)
    w = rng.integers(-128, 128, (outputs, columns // kind.block, kind.block_bytes)).astype(np.int8)
    for place in layout.halves:
        w[..., place : place + 2] = (rng.standard_normal((*w.shape[:2], 1)) / 256).astype(np.float16).view(np.int8)
    if layout.exponent:
        w[..., layout.scale] = rng.integers(120, 128, w.shape[:2])
    return w.reshape(outputs, -1)


def _packed(encoding: str, columns: int, activations: Activations, tokens: int, outputs: int = 37) -> _Case:
    def fn(ctx: ExecutionContext, x: Tensor, w: Tensor) -> Tensor:
        return ctx.ops.packed_linear(x, w, ENCODINGS[encoding], activations=activations)

    return _Case(fn, [_drawn(tokens, columns)], [_bytes_of(encoding, outputs, columns)])


_FORMS: tuple[Activations, ...] = ("exact", "q8")


def _sampled() -> list[Any]:
    """Returns sets of kernels with (encoding, form of x) each: by default one set and form for each encoding."""
    turns = [
        [(encoding, _FORMS[i % 2]) for i, encoding in enumerate(ENCODINGS) if i % 3 == place] for place in range(3)
    ]
    chosen = [list(itertools.product(ENCODINGS, _FORMS))] * 3 if _LONG else turns
    return [
        pytest.param(*set_.values, products, id=set_.id, marks=set_.marks)
        for set_, products in zip(_KERNELS, chosen, strict=True)
    ]


@pytest.mark.parametrize(("kernels", "products"), _sampled())
def test_products_with_packed_weights(kernels: CpuKernels, products: Sequence[tuple[str, Activations]], tmp_path: Path):
    # Whole steps and such that end with a step that begins early, where the set has those.
    counts = (1, 2, 9, 17)
    cases = {
        f"{encoding}_{how}": _packed(encoding, 768 if ENCODINGS[encoding].block > BLOCK else 576, how, max(counts))
        for encoding, how in products
    }
    used = _check(cases, kernels, tmp_path, counts)
    for encoding in {encoding for encoding, _ in products}:
        names = {name for function, name in used.items() if function.startswith(f"packed_linear.{encoding}.")}
        assert {name.partition("-")[2] for name in names} == {"matvec", "few-tokens"}


# Parts of the prompts' kernel: 64 of 704 columns, 256 of 512.
_WHOLE_GROUPS = (
    ("q4_0", "exact", 704),
    ("q4_0", "q8", 512),
    ("q8_0", "exact", 512),
    ("q4_1", "q8", 704),
    ("q8_0", "q8", 704),
    ("q4_1", "exact", 512),
)[: 6 if _LONG else 4]


@_NO_AVX2
@pytest.mark.parametrize(("encoding", "how", "columns"), _WHOLE_GROUPS)
def test_products_of_whole_groups_of_rows_have_the_sums_of_prompts(
    encoding: str, how: Activations, columns: int, tmp_path: Path
):
    few = (encoding, how) != ("q4_0", "exact") and not _LONG
    counts = (1, 2, 17, 25) if few else (1, 2, 4, 8, 9, 16, 32, 128)
    used = _check({"y": _packed(encoding, columns, how, max(counts), 48)}, _SETS["vnni"], tmp_path, counts)
    products = {name for function, name in used.items() if function.startswith("packed_linear.")}
    assert products == {"avx512-vnni-row-lanes", "avx512-vnni-matmul"}


@_NO_AVX2
def test_products_of_whole_groups_of_rows_without_vnni(tmp_path: Path):
    cases = {"exact": _packed("q4_0", 704, "exact", 17, 48), "q8": _packed("q4_1", 512, "q8", 17, 48)}
    used = _check(cases, _SETS["avx512"], tmp_path, (1, 2, 17), near=1e-4)
    products = {name for function, name in used.items() if function.startswith("packed_linear.")}
    assert products == {"avx512-row-lanes"}


def _products() -> list[Any]:
    """Returns sets of kernels with dtypes: by default two dtypes for each set, one of them of 16 bits, in turn."""
    pairs = [(set_, dtype) for i, set_ in enumerate(_KERNELS) for dtype in (("bf16", "f16")[i % 2], "f32")]
    return [
        pytest.param(*set_.values, dtype, id=f"{set_.id}-{dtype}", marks=set_.marks)
        for set_, dtype in (itertools.product(_KERNELS, ("bf16", "f16", "f32")) if _LONG else pairs)
    ]


@pytest.mark.parametrize(("kernels", "dtype"), _products())
def test_products(kernels: CpuKernels, dtype: str, tmp_path: Path):
    tokens = max(_COUNTS)
    cases = {
        str(columns): _Case(
            lambda ctx, x, w: ctx.ops.linear(x, w),
            [_drawn(tokens, columns, dtype=dtype)],
            [_drawn(37, columns, dtype=dtype)],
        )
        for columns in (576, 96)
    }
    used = _check(cases, kernels, tmp_path, (1, 2, 9, 17))
    assert {name.partition("-")[2] for name in used.values()} <= {
        "matvec",
        "few-tokens",
        "bf16-matvec",
        "bf16-few-tokens",
    }


def _attention(group: int, size: int, dtype: str, *, blocks: bool) -> _Case:
    """Returns attention of tokens that see so many of the keys of a row each, perhaps in blocks."""
    tokens, shared, keys, row = max(_COUNTS), 2, 40, 1

    def fn(ctx: ExecutionContext, q: Tensor, bias: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ops = ctx.ops
        rows = ops.constant(np.full(q.shape[0], row, np.int32))
        heads = ops.cached_attention(ops.transpose(q, (0, 2, 3, 1, 4)), k, v, bias, 0.2, rows)
        y = ops.reshape(ops.transpose(heads, (0, 3, 1, 2, 4)), (*q.shape[:2], -1))
        return ops.block_quantize(y)[0] if blocks else y

    bias = _drawn(tokens, keys)
    for token in range(tokens):
        bias[token, 1 + token :] = -1e30
    cached = [_drawn(3, shared, keys, size, dtype=dtype), _drawn(3, shared, keys, 32, dtype=dtype)]
    return _Case(fn, [_drawn(tokens, shared, group, size, dtype=dtype), bias], cached)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_attention(dtype: str, tmp_path: Path):
    cases = {
        f"{group}_{size}_{blocks}": _attention(group, size, dtype, blocks=blocks)
        for group, size, blocks in ((3, 48, True), (1, 64, False), (9, 32, False))[
            : 3 if dtype == "f32" or _LONG else 1
        ]
    }
    used = _check(cases, _HERE, tmp_path, (1, 9, 32))
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


_OF_KERNELS = ("rms_norm", "norm_in_blocks", "gate_in_blocks", "rope")


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_lies_between_products(dtype: str, tmp_path: Path):
    cases = {
        name: _Case(
            fn,
            [_drawn(32, *shape, dtype=dtype) for shape in tokens],
            [_drawn(*shape, dtype=dtype) for shape in parameters],
        )
        for name, (fn, tokens, parameters) in _BETWEEN.items()
        if dtype == "f32" or _LONG or name in _OF_KERNELS
    }
    _check(cases, _HERE, tmp_path, (1, 9, 32))


@pytest.mark.parametrize("kernels", _KERNELS)
def test_products_of_rows_that_are_longer_than_what_the_stack_takes_of_x(kernels: CpuKernels, tmp_path: Path):
    counts = (1, 3)
    _check({name: _packed(name, 28672, "exact", 3) for name in ("q4_0", "q6_k")}, kernels, tmp_path, counts)
