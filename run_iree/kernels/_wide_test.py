"""Kernels of 16-bit products against the eager op, on sizes that fit their tiles and sizes that do not.

By default each set of kernels has every second size, in turn, and those of many rows; with TAPELINE_LONG=1 in the
environment every size and pair of dtypes.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters, Helper, helper_record
from lang_core import Argument, EagerExecutionContext, EntryPoint, ExecutionContext, Tensor, as_dtype
from lang_core import TensorSpec as Spec
from run_iree import Session, compile_module, host_cpu, target_named
from run_iree.kernels import CpuKernels
from run_iree.kernels._spelled_testing import compile_spelled

# The features of a set of kernels, and the sets they are above.
_SETS = {
    "avx512_bf16": ("avx512_bf16", "avx512f", "avx512bw", "avx512vl", "avx2", "fma", "f16c"),
    "avx512": ("avx512f", "avx512bw", "avx512vl", "avx2", "fma", "f16c"),
    "fma": ("avx2", "fma", "f16c"),
    "none": (),
}
_HERE = {*host_cpu().features}
_NO_AVX2 = pytest.mark.skipif(not {*_SETS["fma"]} <= _HERE, reason="this CPU has not all of AVX2, FMA and F16C")
# A set of kernels, and whether this CPU has their instructions.
_KERNELS = [
    pytest.param(CpuKernels.of(features), {*features} <= _HERE, id=name, marks=_NO_AVX2 if name == "fma" else ())
    for name, features in _SETS.items()
]
# (rows, outputs, columns): of several workgroups, of groups of rows that are not full, of tokens that fill no tile.
_SIZES = (
    (1, 2056, 512), (1, 37, 192), (1, 3, 64), (1, 22, 96), (1, 8, 40),
    (2, 48, 160), (7, 16, 32), (8, 96, 1056), (21, 32, 2112), (9, 1072, 640), (3, 5, 64),
    (165, 32, 96), (256, 16, 32),
)  # fmt: skip
_TOLERANCE = {"f32": 2e-6, "bf16": 2**-8, "f16": 2**-11}


def _entry_point(sizes: tuple[int, int, int], dtype: str, result: str) -> EntryPoint:
    rows, outputs, columns = sizes

    def fn(ctx: ExecutionContext, x: Tensor, w: Tensor) -> dict[str, Tensor]:
        return {"y": ctx.ops.dot_general(x, w, ((1,), (1,)), dtype=result)}

    name = f"linear_{rows}_{outputs}_{columns}_{dtype}_{result}"
    arguments = Argument("x", Spec((rows, columns), dtype)), Argument("w", Spec((outputs, columns), dtype))
    return EntryPoint(name, fn, arguments)


def _inputs(sizes: tuple[int, int, int], dtype: str) -> list[np.ndarray[Any, Any]]:
    rows, outputs, columns = sizes
    rng = np.random.default_rng(sum(sizes))
    return [rng.standard_normal(shape).astype(as_dtype(dtype).numpy) for shape in ((rows, columns), (outputs, columns))]


@pytest.mark.parametrize(("kernels", "has"), _KERNELS)
def test_kernels_compute_what_the_eager_op_does(kernels: CpuKernels, has: bool, tmp_path: Path):
    cases = [(sizes, dtype, result) for sizes in _SIZES for dtype in ("bf16", "f16") for result in (dtype, "f32")]
    if not os.environ.get("TAPELINE_LONG"):  # each size has one pair of dtypes, those of many rows two
        cases = [
            case for number, case in enumerate(cases) if (number - number // 4) % (2 if case[0][0] > 99 else 4) == 0
        ]
        cases = [
            case
            for number, case in enumerate(cases)
            if case[0][0] > 99 or number % 2 == (kernels.fma and not kernels.bf16)
        ]
    cases = cases if has else cases[::3]  # long vectors taken apart are long to compile
    points = [_entry_point(*case) for case in cases]
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    with module.open("w") as file:
        lower_module(points, file.write, ExternalParameters())
    target = dataclasses.replace(target_named("llvm-cpu"), kernels=kernels)
    report = compile_module(module, compiled, target) if has else compile_spelled(module, compiled, kernels)
    assert bool(report.kernels) is kernels.fma
    with Session(compiled, "local-task") as session:
        for point, (sizes, dtype, result) in zip(points, cases, strict=True):
            inputs = _inputs(sizes, dtype)
            wanted = point(ctx := EagerExecutionContext(), *map(ctx.constant, inputs))["y"]
            (y,) = session.function(point.name)(*inputs)
            assert y.dtype is wanted.dtype
            a, b = y.numpy().astype(np.float32), wanted.numpy().astype(np.float32)
            near = _TOLERANCE[result] * np.abs(b).max()
            np.testing.assert_allclose(a, b, rtol=0, atol=near, err_msg=f"{sizes}, {dtype}, {result}")


def test_memory_is_asked_ahead_but_where_the_cpu_does_so_itself():
    features = _SETS["avx512_bf16"]
    assert CpuKernels.of(features, "AMD EPYC 9654 96-Core Processor").ahead == 0
    assert CpuKernels.of(features, "Intel(R) Xeon(R) Platinum 8488C").ahead == CpuKernels().ahead > 0
    texts = _text(CpuKernels.of(features, "AMD EPYC")), _text(CpuKernels.of(features))
    assert ["memref.prefetch" in text for text in texts] == [False, True]


def test_candidates_are_kernels_that_the_same_cpu_runs():
    kernels = CpuKernels.of(_SETS["avx512_bf16"], "AMD EPYC 9654 96-Core Processor")
    first, *others = kernels.candidates()
    assert first == kernels
    assert [other.ahead for other in others] == [3456, 6912, 10368, 0]
    assert [other.bf16 for other in others] == [True, True, True, False]
    assert {other.avx512 and other.fma and not other.vnni for other in others} == {True}
    assert [_text(other) != _text(kernels) for other in others] == [True] * 4


def _text(kernels: CpuKernels) -> str:
    given = Spec((1, 128), "bf16"), Spec((64, 128), "bf16")
    kernel = kernels.kernel(helper_record(Helper("linear", "any"), given, [Spec((1, 64), "f32")]))
    assert kernel is not None
    return kernel.body
