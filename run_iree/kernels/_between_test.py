"""Kernels of the ops between products against the eager ops."""

import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import BLOCK, Argument, EagerExecutionContext, EntryPoint, TensorSpec
from run_iree import Session, host_cpu
from run_iree.kernels import CpuKernels
from run_iree.kernels._spelled_testing import compile_spelled

Array = np.ndarray[Any, Any]
_HERE = CpuKernels.of(host_cpu().features)
_DTYPES = ("f32", "bf16", "f16")
_TOLERANCE = {"f32": 4e-6, "bf16": 2**-7, "f16": 2**-10}
# (rows, columns): one block, workgroups that are not full, an odd number of vectors to sum, a whole layer's width.
_SIZES = ((1, 32), (1, 2048), (7, 96), (33, 160), (3, 1056))


def _blocks(ctx: Any, x: Any, bits: int) -> dict[str, Any]:
    return dict(zip(("q", "scale", "total"), ctx.ops.block_quantize(x, bits), strict=True))


def _normed(ctx: Any, x: Any, w: Any) -> Any:
    return ctx.ops.rms_norm(x, w, 1e-3)


def _plain(ctx: Any, x: Any, w: Any) -> Any:
    del w
    return ctx.ops.rms_norm(x, None, 1e-3)


def _centred(ctx: Any, x: Any, w: Any) -> Any:
    """Normalises x as a model's zero-centred ``RMSNorm`` does; emission knows it by the composite's name."""

    def body(x: Any, w: Any, eps: float) -> Any:
        scale = ctx.ops.add(ctx.ops.cast(w, "f32"), 1.0)
        return ctx.ops.cast(ctx.ops.rms_norm(ctx.ops.cast(x, "f32"), scale, eps), x.dtype)

    return ctx.composite("zero_centred_rms_norm", body, (x, w), (1e-3,))


def _gated(ctx: Any, gate: Any, up: Any) -> Any:
    return ctx.ops.mul(ctx.ops.silu(gate), up)


def _random(*specs: TensorSpec) -> list[Array]:
    rng = np.random.default_rng(11)
    return [rng.standard_normal(spec.shape).astype(spec.dtype.numpy) for spec in specs]


def _run(points: list[EntryPoint], kernels: CpuKernels, folder: Path) -> tuple[Mapping[str, str], Session]:
    """Returns the kernels that were used, and a session with them."""
    module, compiled = folder / "module.mlir", folder / "module.vmfb"
    with module.open("w") as file:
        lower_module(points, file.write, ExternalParameters())
    report = compile_spelled(module, compiled, kernels)
    return report.kernels, Session(compiled, "local-task")


def _point(name: str, fn: Callable[..., Any], *specs: TensorSpec) -> EntryPoint:
    return EntryPoint(name, fn, tuple(Argument(f"x{i}", spec) for i, spec in enumerate(specs)))


@pytest.mark.parametrize(("bits", "largest"), [(8, 127), (16, 32512)])
def test_norms_and_gates_are_quantised_as_the_eager_ops_do(bits: int, largest: int, tmp_path: Path):
    cases = []
    for (rows, columns), dtype in zip(_SIZES, itertools.cycle(_DTYPES), strict=False):
        x = TensorSpec((rows, columns), dtype)
        for kind in sorted({dtype, "f32", "bf16"}):
            w = TensorSpec((columns,), kind)
            cases.append((f"norm_{rows}_{columns}_{dtype}_{kind}", _normed, (x, w)))
        cases.append((f"plain_{rows}_{columns}_{dtype}", _plain, (x, x)))
        cases.append((f"centred_{rows}_{columns}_{dtype}", _centred, (x, TensorSpec((columns,), dtype))))
        cases.append((f"gated_{rows}_{columns}_{dtype}", _gated, (x, x)))
    if not os.environ.get("TAPELINE_LONG"):  # integers of 8 bits have every second case, integers of 16 the others
        cases = cases[bits // 8 - 1 :: 2]
    points = [_point(name, lambda c, a, b, f=fn: _blocks(c, f(c, a, b), bits), *specs) for name, fn, specs in cases]
    used, session = _run(points, CpuKernels(), tmp_path)
    assert {name.partition(".")[0] for name in used} == {"rms_norm_quantize", "silu_quantize"}
    with session:
        for name, fn, specs in cases:
            given = _random(*specs)
            given[0][0, :BLOCK] = 0
            wanted = fn(ctx := EagerExecutionContext(), *map(ctx.constant, given)).numpy().astype(np.float32)
            q, scale, total = (tensor.numpy() for tensor in session.function(name)(*given))
            cube = wanted.reshape(specs[0].shape[0], -1, BLOCK)
            most = np.abs(cube).max(-1)
            near = _TOLERANCE[specs[0].dtype.name]
            np.testing.assert_allclose(scale, most / largest, rtol=near, atol=0, err_msg=name)
            digits = q.astype(np.int32)
            integers = (digits[:, 0] if bits == 8 else 255 * digits[:, 0] + digits[:, 1]).reshape(cube.shape)
            np.testing.assert_array_equal(total, integers.sum(-1), err_msg=name)
            np.testing.assert_array_equal(np.abs(integers).max(-1), np.where(most > 0, largest, 0))
            error = np.abs(integers * scale[..., None] - cube)
            assert (error <= most[..., None] * (0.5 / largest + near)).all(), name
