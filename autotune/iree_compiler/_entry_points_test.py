"""Flags of IREE's compiler as configurations of an entry point with weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import ConfigSelectorChain, Executor, PersistentCache, Tuner
from autotune.iree_compiler import CANDIDATE_FLAGS, CompileFlags, EntryPointKernel, IreeCompiler
from lang_core import Argument, EntryPoint, MappingWeights, Module, Parameter, TensorSpec
from run_iree.archive import ArchiveEntry, write_archive

_SLOW = ("--iree-opt-level=O0",)
_WRONG = ("--iree-no-such-flag",)


class _Model(Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = Parameter((outputs, inputs))

    def forward(self, ctx: Any, x: Any, scale: Any) -> Any:
        return ctx.ops.mul(ctx.ops.linear(x, ctx.parameter(self.weight)), scale)


def _entry_point(model: _Model, rows: int) -> EntryPoint:
    arguments = (
        Argument("x", TensorSpec((rows, model.weight.spec.shape[1]), "f32")),
        Argument("scale", TensorSpec((), "f32"), kind="scalar"),
    )

    def forward(ctx: Any, x: Any, scale: Any) -> dict[str, Any]:
        return {"y": model(ctx, x, scale), "twice": ctx.ops.add(x, x)}

    return EntryPoint("forward", forward, arguments)


class _ByFlags(Tuner[CompileFlags]):
    """Prefers the last candidate."""

    def __init__(self) -> None:
        super().__init__(warmup=0, iters=1, rounds=1)
        self.count = 0

    def measure(self, fn: Any, *args: Any, **kwargs: Any) -> float:
        self.count += 1
        fn(*args, **kwargs)
        return 1.0 / self.count


def test_flags_are_tried_compared_and_remembered_for_this_model(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weight, x = random.standard_normal((6, 5)).astype(np.float32), random.standard_normal((3, 5)).astype(np.float32)
    model = _Model(5, 6)
    entries = [ArchiveEntry("weight", "weight", model.weight.spec)]
    write_archive(tmp_path / "w.irpa", entries, MappingWeights({"weight": weight}))
    compiler = IreeCompiler("local-sync", parameters=tmp_path / "w.irpa")
    kernel = EntryPointKernel(_entry_point(model, 3), flags=[(), _WRONG, _SLOW])
    cache: PersistentCache[Any] = PersistentCache(path=tmp_path / "k.json")
    executor = Executor(ConfigSelectorChain(tuner=_ByFlags(), persistent=cache), compiler=compiler)
    compiled = executor.compile(kernel, x, np.float32(2.0))
    assert compiled.cfg == CompileFlags(_SLOW)
    result = compiled(x, np.array(3.0, np.float32))
    np.testing.assert_allclose(result["y"], 3 * x @ weight.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result["twice"], 2 * x)
    (entry,) = cache.entries()
    assert [(m.cfg.compile_flags, m.status) for m in entry.measurements] == [
        ((), "ok"),
        (_WRONG, "failed"),
        (_SLOW, "ok"),
    ]
    assert "no-such-flag" in entry.measurements[1].detail or "CompileError" in entry.measurements[1].detail
    other = Executor(ConfigSelectorChain(policy="cached-only", persistent=cache), compiler=compiler)
    assert other.compile(kernel, x, np.float32(2.0)).cfg == CompileFlags(_SLOW)
    assert EntryPointKernel(_entry_point(_Model(5, 7), 3)).op != kernel.op


@pytest.mark.parametrize("flags", CANDIDATE_FLAGS, ids=" ".join)
def test_iree_knows_the_flags_that_are_tried(flags: tuple[str, ...], tmp_path: Path) -> None:
    weight = np.eye(4, 5, dtype=np.float32)
    model = _Model(5, 4)
    write_archive(
        tmp_path / "w.irpa",
        [ArchiveEntry("weight", "weight", model.weight.spec)],
        MappingWeights({"weight": weight}),
    )
    executor = Executor(compiler=IreeCompiler("local-sync", parameters=tmp_path / "w.irpa"))
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    compiled = executor.compile(EntryPointKernel(_entry_point(model, 2)), x, np.float32(1.0), cfg=CompileFlags(flags))
    np.testing.assert_array_equal(compiled(x, np.float32(2.0))["y"], 2 * x[:, :4])
