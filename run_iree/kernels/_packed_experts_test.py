"""Kernels of products with stacked experts against the eager op: every kernel of a product, per group of rows.

By default each set of kernels has one encoding, in turn; with TAPELINE_LONG=1 in the environment both.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import ENCODINGS, Argument, EagerExecutionContext, Encoding, EntryPoint, ExecutionContext, Tensor
from lang_core import TensorSpec as Spec
from run_iree import Session, compile_module, host_cpu, target_named
from run_iree.kernels import CpuKernels
from run_iree.kernels._spelled_testing import compile_spelled

_HERE = CpuKernels.of(host_cpu().features)
_NO_AVX2 = pytest.mark.skipif(not _HERE.fma, reason="this CPU has no AVX2")
_KERNELS = [
    pytest.param(CpuKernels(vnni=True), _HERE.vnni, id="vnni"),
    pytest.param(CpuKernels(fma=True), True, id="fma", marks=_NO_AVX2),
    pytest.param(CpuKernels(), True, id="vector"),
]
_ENCODINGS = [ENCODINGS[name] for name in ("q4_0", "q6_k")]
_EXPERTS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class _Sizes:
    """Product of groups [G] that share x [X, rows, columns] with experts' weights [5, outputs, columns]."""

    given: int
    groups: int
    rows: int
    outputs: int
    columns: int
    activations: Literal["exact", "q8"] = "exact"


_SIZES = (
    _Sizes(1, 4, 1, 37, 256),  # of one token: gate and up, then down
    _Sizes(4, 4, 1, 48, 512, "q8"),
    _Sizes(2, 6, 1, 300, 768),  # of two tokens
    _Sizes(1, 1, 7, 64, 256),  # a round of a prompt
    _Sizes(1, 1, 16, 32, 512, "q8"),
    _Sizes(2, 2, 5, 32, 256, "q8"),  # what is arranged for several tokens would be each group's own
)


def _entry_point(sizes: _Sizes, encoding: Encoding, name: str) -> EntryPoint:
    def fn(ctx: ExecutionContext, x: Tensor, expert: Tensor, w: Tensor) -> dict[str, Tensor]:
        return {"y": ctx.ops.packed_expert_linear(x, expert, w, encoding, activations=sizes.activations)}

    packed = encoding.packed(Spec((_EXPERTS, sizes.outputs, sizes.columns), "f32"))
    x, expert = Spec((sizes.given, sizes.rows, sizes.columns), "f32"), Spec((sizes.groups,), "i32")
    return EntryPoint(name, fn, (Argument("x", x), Argument("expert", expert), Argument("w", packed)))


def _inputs(sizes: _Sizes, encoding: Encoding) -> list[np.ndarray[Any, Any]]:
    """Returns x, experts of which some lie outside, and blocks of any integers with moderate scales."""
    rng = np.random.default_rng(sizes.groups)
    x = rng.standard_normal((sizes.given, sizes.rows, sizes.columns)).astype(np.float32)
    expert = rng.integers(-1, _EXPERTS + 1, sizes.groups).astype(np.int32)
    shape = (_EXPERTS, sizes.outputs, sizes.columns // encoding.block)
    blocks = rng.integers(-128, 128, (*shape, encoding.block_bytes)).astype(np.int8)
    for place in encoding.layout.halves:
        halves = (rng.standard_normal((*shape, 1)) / 256).astype(np.float16)
        blocks[..., place : place + 2] = halves.view(np.int8)
    return [x, expert, blocks.reshape(_EXPERTS, sizes.outputs, -1)]


def _sampled() -> list[Any]:
    """Returns sets of kernels with encodings."""
    return [
        pytest.param(*set_.values, encoding, id=f"{set_.id}-{encoding.name}", marks=set_.marks)
        for i, set_ in enumerate(_KERNELS)
        for j, encoding in enumerate(_ENCODINGS)
        if os.environ.get("TAPELINE_LONG") or i % 2 == j
    ]


@pytest.mark.parametrize(("kernels", "has", "encoding"), _sampled())
def test_kernels_compute_what_the_eager_op_does(
    kernels: CpuKernels, has: bool, encoding: Encoding, tmp_path: Path
) -> None:
    cases = _SIZES if has else _SIZES[:2]  # long vectors taken apart are long to compile
    points = [_entry_point(sizes, encoding, f"case{number}") for number, sizes in enumerate(cases)]
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    with module.open("w") as file:
        lower_module(points, file.write, ExternalParameters())
    target = dataclasses.replace(target_named("llvm-cpu"), kernels=kernels)
    report = compile_module(module, compiled, target) if has else compile_spelled(module, compiled, kernels)
    assert sum(name.startswith("expert_block_product") for name in report.kernels) == len(cases)
    with Session(compiled, "local-task") as session:
        for point, sizes in zip(points, cases, strict=True):
            inputs = _inputs(sizes, encoding)
            expected = point(ctx := EagerExecutionContext(), *map(ctx.constant, inputs))["y"].numpy()
            (actual,) = session.function(point.name)(*inputs)
            # Integers of 16 bits are within 1 / 65024 of a block's largest element, of which there are many.
            near = (2e-6 if sizes.activations == "q8" else 2e-4) * np.abs(expected).max()
            np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=near, err_msg=f"{sizes}")
