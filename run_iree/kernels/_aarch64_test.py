"""Kernels of any vectors compile for 64-bit ARM, too (docs/lab/2026-11-23-aarch64.md has them run there)."""

import dataclasses
from pathlib import Path

import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import BLOCK, ENCODINGS, Argument, EntryPoint, ExecutionContext, Tensor, TensorSpec
from run_iree import compile_module, target_named
from run_iree.kernels import CpuKernels

_TRIPLE = "--iree-llvmcpu-target-triple=aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(("encoding", "rows"), [("q8_0", 1), ("q4_k", 7), ("mxfp4", 1)])
@pytest.mark.parametrize("cpu", ["generic", "neoverse-n1"])
def test_a_product_with_packed_weights_compiles(cpu: str, encoding: str, rows: int, tmp_path: Path) -> None:
    columns = ENCODINGS[encoding].block * (256 // BLOCK)
    packed = ENCODINGS[encoding].packed(TensorSpec((48, columns), "f32"))

    def product(ctx: ExecutionContext, x: Tensor, w: Tensor) -> dict[str, Tensor]:
        return {"y": ctx.ops.packed_linear(x, w, ENCODINGS[encoding])}

    arguments = (Argument("x", TensorSpec((rows, columns), "f32")), Argument("w", packed))
    lines: list[str] = []
    lower_module([EntryPoint("main", product, arguments)], lines.append, ExternalParameters())
    module, compiled = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    module.write_text("".join(lines))
    target = target_named("llvm-cpu", cpu=cpu)
    assert target.kernels == CpuKernels(ahead=target.kernels.ahead if target.kernels else 0)
    report = compile_module(module, compiled, dataclasses.replace(target, flags=(*target.flags, _TRIPLE)))
    assert set(report.kernels.values()) == {"vector"}
    assert compiled.stat().st_size > 0
