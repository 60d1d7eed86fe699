"""Kernels in place of composites, in an eager context."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import (
    CompositeKernel,
    ConfigSelectorChain,
    Environment,
    Executor,
    Invocation,
    Kernel,
    PersistentCache,
    forget_invocations,
    profile,
    read_record,
    remembering_executor,
    using_kernels,
    with_kernels,
)
from lang_core import Argument, EagerExecutionContext, EntryPoint, ExecutionContext, Tensor, TensorSpec

_HEURISTICS = Executor(ConfigSelectorChain(policy="heuristics"))


class Softmax(Kernel[str, Tensor]):
    """Softmax by the composite that it replaces; counts its runs."""

    op_id = "tests.softmax"
    runs = 0

    def run(self, x: Any, *, cfg: str, ctx: ExecutionContext) -> Tensor:
        """Returns a tensor of x's shape."""
        Softmax.runs += 1
        self.path = ctx.module_path
        return ctx.ops.mul(ctx.ops.softmax(x), 3.0 if cfg == "tripled" else 1.0)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> str:
        """Returns the form that is not scaled."""
        return "plain"


def _table(kernel: Softmax) -> dict[str, CompositeKernel]:
    return {"softmax": CompositeKernel(kernel, lambda x, where, axis: ((x,), {}) if where is None else None)}


def _x() -> Any:
    return np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def test_a_kernel_runs_in_place_of_its_composite_and_may_call_it() -> None:
    ctx, kernel, x = EagerExecutionContext(), Softmax(), _x()
    plain = ctx.ops.softmax(x).numpy()
    ctx.module_path = "model.layers.3"
    Softmax.runs = 0
    with using_kernels(ctx, _table(kernel), _HEURISTICS), profile() as calls:
        result = ctx.ops.softmax(x)
    np.testing.assert_array_equal(result.numpy(), plain)
    assert Softmax.runs == 1
    assert [(call.cfg, call.label.partition(":")[0]) for call in calls] == [("plain", "tapeline_ops#tests.softmax@v0")]
    assert kernel.path == f"model.layers.3.{calls[0].label}"
    assert ctx.module_path == "model.layers.3"
    ctx.ops.softmax(x)
    assert Softmax.runs == 1


def test_a_call_that_is_not_for_the_kernel_is_left_to_the_body() -> None:
    ctx, x = EagerExecutionContext(), _x()
    mask = ctx.constant([True, False, True])
    wanted = ctx.ops.softmax(x, where=mask).numpy()
    with using_kernels(ctx, _table(Softmax()), _HEURISTICS), profile() as calls:
        np.testing.assert_array_equal(ctx.ops.softmax(x, where=mask).numpy(), wanted)
        ctx.ops.gelu(x)
    assert not calls


def test_what_is_remembered_decides_where_no_executor_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAPELINE_KERNEL_CACHE", str(tmp_path))
    ctx, kernel, x = EagerExecutionContext(), Softmax(), _x()
    plain = ctx.ops.softmax(x).numpy()
    chain = _HEURISTICS.chooser
    assert isinstance(chain, ConfigSelectorChain)
    key = chain.key(Invocation(kernel.op_id, (ctx.constant(x),), {"ctx": ctx}), kernel)
    PersistentCache[str]().put(*key[:3], "tripled")
    with using_kernels(ctx, _table(kernel)):
        np.testing.assert_array_equal(ctx.ops.softmax(x).numpy(), plain * 3)
    assert not (tmp_path / "invocations.jsonl").exists()


def test_a_failing_kernel_leaves_the_context_as_it_was() -> None:
    class Failing(Softmax):
        def run(self, x: Any, *, cfg: str, ctx: ExecutionContext) -> Tensor:
            raise ValueError("lost")

    ctx, x = EagerExecutionContext(), _x()
    with using_kernels(ctx, _table(Failing()), _HEURISTICS):
        with pytest.raises(ValueError, match="lost"):
            ctx.ops.softmax(x)
        with pytest.raises(ValueError, match="lost"):
            ctx.ops.softmax(x)
        assert ctx.module_path == ""


def test_an_entry_point_carries_its_kernels_and_where_it_will_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAPELINE_OPS_RECORD_FILE", str(tmp_path / "calls.jsonl"))
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "1")
    forget_invocations()
    spec = TensorSpec((2, 3), "f32")
    point = EntryPoint("f", lambda ctx, x: {"y": ctx.ops.softmax(x)}, (Argument("x", spec),))
    where = Environment("iree", "cpu", "elsewhere", "some CPU", ("iree 1",))
    there = with_kernels(point, _table(Softmax()), remembering_executor(), where)
    here = with_kernels(point, _table(Softmax()), remembering_executor())
    ctx, x = EagerExecutionContext(), _x()
    for replaced in (there, here):
        np.testing.assert_array_equal(
            replaced(ctx, ctx.constant(x))["y"].numpy(), point(ctx, ctx.constant(x))["y"].numpy()
        )
    calls = list(read_record(tmp_path / "calls.jsonl"))
    assert calls[0].key.device.rpartition("|")[0] == "iree|cpu|elsewhere"
    assert calls[1].key.device.startswith("numpy|cpu|")
    assert calls[0].key.call == calls[1].key.call
    assert [(replaced.name, replaced.arguments) for replaced in (there, here)] == [("f", point.arguments)] * 2
