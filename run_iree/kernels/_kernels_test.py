"""Kernels against the eager op, on sizes that fit their tiles and sizes that do not.

By default each encoding has one set of kernels and a half of the sizes; with TAPELINE_LONG=1 in the environment every
set, every size and both forms of x.
"""

import dataclasses
import itertools
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import (
    BLOCK,
    ENCODINGS,
    Argument,
    EagerExecutionContext,
    Encoding,
    EntryPoint,
    ExecutionContext,
    Tensor,
    as_dtype,
)
from lang_core import TensorSpec as Spec
from run_iree import Session, compile_module, host_cpu, target_named
from run_iree.kernels import CpuKernels, Substitution
from run_iree.kernels._spelled_testing import compile_spelled, packed_linear

_HERE = CpuKernels.of(host_cpu().features)
_NO_AVX2 = pytest.mark.skipif(not _HERE.fma, reason="this CPU has no AVX2")
# A set of kernels, which of them several sizes get, and whether this CPU has their instructions.
_KERNELS = [
    pytest.param(CpuKernels(vnni=True), {"avx512-matvec", "avx512-vnni-matmul"}, _HERE.vnni, id="vnni"),
    pytest.param(CpuKernels(avx512=True, fma=True), {"avx512-matvec", "avx512-matmul"}, _HERE.avx512, id="avx512"),
    pytest.param(CpuKernels(fma=True), {"avx2-matvec", "avx2-matmul"}, True, id="fma", marks=_NO_AVX2),
    pytest.param(CpuKernels(), {"vector"}, True, id="vector"),
]
# Encodings that the kernels of every instruction set are for; the others are in _layouts_test.
_ENCODINGS = {name: ENCODINGS[name] for name in ("q8_0", "q4_0", "q6_k", "q4_k")}
# Each encoding with x in 8 bits or in 16; with TAPELINE_LONG=1 with both.
_BITS = itertools.cycle([(8,), (16,)]) if not os.environ.get("TAPELINE_LONG") else itertools.repeat((8, 16))
_PRODUCTS = {
    f"{bits}-{name}": (encoding, bits)
    for (name, encoding), several in zip(_ENCODINGS.items(), _BITS, strict=False)
    for bits in several
}
_K = [encoding for encoding in _ENCODINGS.values() if encoding.block > BLOCK]
# (rows, outputs, columns): of several workgroups, of groups of rows that are not full, of an odd number of blocks,
# of more columns than a kernel for AVX2 has place for at once.
_SIZES = (
    (1, 256, 2048), (1, 37, 192), (1, 3, 64), (1, 22, 96), (1, 19, 384), (1, 2, 28672),
    (2, 48, 160), (7, 16, 32), (8, 80, 1056), (21, 32, 2112), (3, 5, 64), (165, 32, 96),
)  # fmt: skip
# The same of super-blocks.
_K_SIZES = (
    (1, 256, 2048), (1, 37, 256), (1, 3, 768), (2, 48, 512), (7, 16, 256), (8, 80, 1024), (21, 32, 2304), (3, 5, 256),
    (165, 32, 256),
)  # fmt: skip


_DTYPES = ("f32", "bf16", "f16")
_TOLERANCE = {"f32": 2e-6, "bf16": 2**-8, "f16": 2**-11}


def _entry_point(sizes: tuple[int, int, int], dtype: str, encoding: Encoding, bits: int) -> EntryPoint:
    rows, outputs, columns = sizes

    def fn(ctx: ExecutionContext, x: Tensor, w: Tensor) -> dict[str, Tensor]:
        q, scale, total = ctx.ops.block_quantize(x, bits)
        y = ctx.ops.block_product((q, scale, total), w, encoding, x.dtype)
        return {"y": y, "q": q, "scale": scale, "total": total}

    packed = encoding.packed(Spec((outputs, columns), "f32"))
    name = f"linear_{rows}_{outputs}_{columns}_{dtype}"
    return EntryPoint(name, fn, (Argument("x", Spec((rows, columns), dtype)), Argument("w", packed)))


def _inputs(sizes: tuple[int, int, int], dtype: str, encoding: Encoding) -> list[np.ndarray[Any, Any]]:
    rows, outputs, columns = sizes
    rng = np.random.default_rng(sum(sizes))
    x = rng.standard_normal((rows, columns)).astype(as_dtype(dtype).numpy)
    x[0, :32] = 0
    x[-1, -32:] = -0.5
    if encoding.quantizer is None:
        return [x, _drawn_blocks(rng, outputs, columns, encoding)]
    weight = rng.standard_normal((outputs, columns)).astype(np.float32)
    packed = encoding.pack(weight)
    packed.reshape(outputs, -1, encoding.block_bytes)[:, -1, 2:] = -128  # no quantiser makes it, and a file may have it
    return [x, packed]


def _drawn_blocks(rng: np.random.Generator, outputs: int, columns: int, encoding: Encoding) -> np.ndarray[Any, Any]:
    """Returns blocks of any integers, with scales of either sign that are small enough for results in f16."""
    blocks = rng.integers(-128, 128, (outputs, columns // encoding.block, encoding.block_bytes)).astype(np.int8)
    for place in encoding.layout.halves:
        halves = (rng.standard_normal((*blocks.shape[:2], 1)) / 256).astype(np.float16)
        blocks[..., place : place + 2] = halves.view(np.int8)
    return blocks.reshape(outputs, -1)


def _sampled() -> list[Any]:
    """Returns sets of kernels with products and sizes: by default one set for each encoding, of half the sizes.

    Each has the last of the sizes, a prompt's.
    """
    chosen = [(name, i + j, {0, 1}) for i, name in enumerate(_PRODUCTS) for j in range(4)]
    if not os.environ.get("TAPELINE_LONG"):
        chosen = [(name, i, {i % 2}) for i, name in enumerate(_PRODUCTS)]
    return [
        pytest.param(*kernels.values, *_PRODUCTS[name], part, id=f"{kernels.id}-{name}", marks=kernels.marks)
        for name, kernels, part in ((name, _KERNELS[place % 4], part) for name, place, part in chosen)
    ]


@pytest.mark.parametrize(("kernels", "names", "has", "encoding", "bits", "part"), _sampled())
def test_kernels_compute_what_the_eager_op_does(
    kernels: CpuKernels, names: set[str], has: bool, bits: int, encoding: Encoding, part: set[int], tmp_path: Path
):
    sizes_of = _K_SIZES if encoding in _K else _SIZES
    cases = list(zip(sizes_of, itertools.cycle(_DTYPES), strict=False))  # a dtype has no part in most of a kernel
    taken = part if has else {1}  # long vectors taken apart are long to compile
    cases = [case for i, case in enumerate(cases) if i % 2 in taken or i == len(cases) - 1]
    points = [_entry_point(*case, encoding, bits) for case in cases]
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    with module.open("w") as file:
        lower_module(points, file.write, ExternalParameters())
    target = dataclasses.replace(target_named("llvm-cpu"), kernels=kernels)
    report = compile_module(module, compiled, target) if has else compile_spelled(module, compiled, kernels)
    assert len(report.kernels) == 2 * len(cases)
    assert {name for name in names if bits == 8 or name.endswith("matmul")} <= set(report.kernels.values())
    with Session(compiled, "local-task") as session:
        for point, (sizes, dtype) in zip(points, cases, strict=True):
            inputs = _inputs(sizes, dtype, encoding)
            expected = point(ctx := EagerExecutionContext(), *map(ctx.constant, inputs))
            for tensor, (name, wanted) in zip(session.function(point.name)(*inputs), expected.items(), strict=True):
                error = f"{sizes}, {dtype}, {name}"
                assert tensor.dtype is wanted.dtype
                if name in ("q", "total"):
                    np.testing.assert_array_equal(tensor.numpy(), wanted.numpy(), err_msg=error)
                else:
                    a, b = tensor.numpy().astype(np.float32), wanted.numpy().astype(np.float32)
                    near = _TOLERANCE[dtype if name == "y" else "f32"] * np.abs(b).max()
                    np.testing.assert_allclose(a, b, rtol=0, atol=near, err_msg=error)


@pytest.mark.parametrize(
    ("encoding", "dtype", "sizes", "names"),
    [
        ("q4_0", "bf16", (1, 64, 128), ("avx512-matvec", "avx2-matvec", "vector")),
        ("q8_0", "f32", (1, 5, 64), ("avx2-matvec", "avx2-matvec", "vector")),
        ("q8_0", "f32", (1, 5, 96), ("vector", "vector", "vector")),
        ("q8_0", "f32", (1, 5, 160), ("avx512-matvec", "vector", "vector")),
        ("q4_0", "f16", (1, 5, 28672), ("avx512-matvec", "avx2-matvec", "vector")),
        ("q4_0", "f16", (1, 5, 28736), ("avx512-matvec", "avx2-matvec", "vector")),
        ("q4_k", "f16", (1, 5, 256), ("avx512-matvec", "avx2-matvec", "vector")),
        ("q6_k", "f16", (1, 5, 28672), ("avx512-matvec", "avx2-matvec", "vector")),
    ],
)
def test_one_token_gets_the_kernel_of_the_cpu_that_fits(
    encoding: str, dtype: str, sizes: tuple[int, int, int], names: tuple[str, ...]
):
    sets = CpuKernels(vnni=True, fma=True), CpuKernels(fma=True), CpuKernels()
    chosen = [kernels.kernel(packed_linear(ENCODINGS[encoding], sizes, dtype)) for kernels in sets]
    assert [kernel and kernel.name for kernel in chosen] == list(names)


def test_a_kernel_is_chosen_by_the_record_in_the_head_not_by_the_name():
    """A name says nothing that is read: with another one, a function has the same kernel; without a record, none."""
    pieces: list[str] = []
    lowered = lower_module(
        [_entry_point((2, 48, 160), "bf16", ENCODINGS["q4_0"], 16)], pieces.append, ExternalParameters()
    )
    text = "".join(pieces)
    used: list[dict[str, str]] = []
    for number, function in enumerate(lowered.helpers):
        text = text.replace(f"@{function.name}(", f"@f{number}(")
    for lines in (text, re.sub(r" attributes \{tapeline\.helper = .*\} \{\n", " {\n", text)):
        substitution = Substitution(CpuKernels(fma=True))
        list(substitution.lines(lines.splitlines(keepends=True)))
        used.append(substitution.used)
    kernels = {function.kind: CpuKernels(fma=True).kernel(function) for function in lowered.helpers}
    assert list(kernels) == ["block_quantize", "packed_linear"]
    assert used == [{f"f{i}": kernel.name for i, kernel in enumerate(kernels.values()) if kernel}, {}]
    assert len(used[0]) == 2
