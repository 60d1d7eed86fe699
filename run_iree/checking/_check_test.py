"""The check of kernels finds what is wrong with one, and says where."""

import numpy as np
import pytest

from compile_hlo.directions import KernelSignature
from lang_core import CompileError, EagerExecutionContext, ExecutionContext, Tensor, VerificationError
from run_iree.checking import check_kernel
from run_iree.kernels import Buffer, CpuKernel, CpuKernels, _registered, register_kernel

_X = np.linspace(-3, 4, 128, dtype=np.float32).reshape(2, 64)
# Integers of 8 bits, scales and sums of each block of 32 of x; one workgroup, and no more than a test needs.
_QUANTIZE = """\
%c1 = arith.constant 1 : index
%c32 = arith.constant 32 : index
%c{blocks} = arith.constant {blocks} : index
%most = arith.constant 127.0 : f32
%none = arith.constant 0.0 : f32
%no_total = arith.constant 0 : i32
scf.for %block = %c0 to %c{blocks} step %c1 {{
  %begin = arith.muli %block, %c32 : index
  %largest = scf.for %i = %c0 to %c32 step %c1 iter_args(%so_far = %none) -> f32 {{
    %at = arith.addi %begin, %i : index
    %value = memref.load %x[%at] : memref<{elements}xf32>
    %size = math.absf %value : f32
    %next = arith.maximumf %size, %so_far : f32
    scf.yield %next : f32
  }}
  %unit = arith.divf %largest, %{divisor} : f32
  memref.store %unit, %scale[%block] : memref<{blocks}xf32>
  %sum = scf.for %i = %c0 to %c32 step %c1 iter_args(%so_far = %no_total) -> i32 {{
    %at = arith.addi %begin, %i : index
    %value = memref.load %x[%at] : memref<{elements}xf32>
    %ratio = arith.divf %value, %unit : f32
    %whole = math.roundeven %ratio : f32
    %word = arith.fptosi %whole : f32 to i32
    %byte = arith.trunci %word : i32 to i8
    memref.store %byte, %q[%at] : memref<{elements}xi8>
    %next = arith.addi %word, %so_far : i32
    scf.yield %next : i32
  }}
  memref.store %sum, %total[%block] : memref<{blocks}xi32>
}}
"""


def _quantize(function: KernelSignature, divisor: str) -> CpuKernel:
    elements = function.arguments[0].spec.size
    blocks = elements // 32
    buffers = [("x", elements, "f32"), ("q", elements, "i8"), ("scale", blocks, "f32"), ("total", blocks, "i32")]
    body = _QUANTIZE.format(elements=elements, blocks=blocks, divisor=divisor)
    return CpuKernel("plain-quantize", tuple(Buffer(*buffer) for buffer in buffers), 1, body)


def _call(ctx: ExecutionContext, x: Tensor) -> dict[str, Tensor]:
    q, scale, total = ctx.ops.block_quantize(x, 8)
    return {"q": q, "scale": scale, "total": total}


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test register kernels that the next one does not see."""
    monkeypatch.setattr(_registered, "_KERNELS", {})


def test_a_kernel_that_is_right_passes() -> None:
    register_kernel("block_quantize", lambda function: _quantize(function, "most"))
    check = check_kernel(_call, _X, kernel="plain-quantize")
    assert set(check.kernels.values()) == {"plain-quantize"}
    assert check.errors["q"] == check.errors["total"] == 0
    assert 0 <= check.errors["scale"] <= 1e-6
    assert set(check.portable_errors) == {"q", "scale", "total"}
    ctx = EagerExecutionContext()
    scale = ctx.ops.block_quantize(ctx.constant(_X), 8)[1].numpy()
    np.testing.assert_allclose(scale.reshape(2, 2), np.abs(_X.reshape(2, 2, 32)).max(axis=2) / 127, rtol=1e-6)


def test_a_kernel_that_is_wrong_is_told_by_its_result() -> None:
    register_kernel("block_quantize", lambda function: _quantize(function, "largest"))
    with pytest.raises(
        VerificationError, match=r"kernel 'plain-quantize' departs from the eager context: q\[0, 0, \d+\] is"
    ):
        check_kernel(_call, _X, kernel="plain-quantize")


def test_a_kernel_that_was_not_used_is_told_with_those_that_were() -> None:
    register_kernel("block_quantize", lambda function: None)
    with pytest.raises(VerificationError, match=r"kernel 'plain' was not used; used: vector: is it registered for the"):
        check_kernel(_call, _X, kernel="plain", kernels=CpuKernels())


def test_kernels_that_this_cpu_cannot_run_are_refused() -> None:
    with pytest.raises(
        CompileError, match="kernels for acme: this CPU lacks the instructions, and only a CPU that has"
    ):
        check_kernel(_call, _X, kernel="plain", kernels=CpuKernels(registered=("acme",)))


@pytest.mark.parametrize(("bad", "wanted"), [(np.nan, 1.0), (1.0, np.inf), (np.inf, -np.inf)])
def test_values_that_are_not_finite_have_to_be_the_same(bad: float, wanted: float) -> None:
    def call(ctx: ExecutionContext, x: Tensor) -> Tensor:
        value = wanted if isinstance(ctx, EagerExecutionContext) else bad
        return ctx.ops.add(x, ctx.constant(np.array([0, value], np.float32)))

    with pytest.raises(VerificationError, match=r"the StableHLO departs from the eager context: result\[1\]"):
        check_kernel(call, np.zeros(2, np.float32), kernel="none")
