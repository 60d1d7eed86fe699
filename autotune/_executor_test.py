from typing import Any

import numpy as np
import pytest

from autotune import (
    ConfigSelectorChain,
    Executor,
    Invocation,
    Kernel,
    KernelError,
    Tuner,
    TuningError,
    profile,
)
from autotune._kernels_testing import Blocks, Matmul, chain, matrices
from lang_core import EagerExecutionContext, EagerTensor, Tensor, TensorSpec


class Split(Kernel[int, Any]):
    """The halves of x + y, computed in cfg pieces by a context."""

    op_id = "tests.split"

    def prepare(self, x: Any, y: Any = 1.0, *, axis: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (x, np.full(x.shape, y, np.float32)), {"axis": axis % x.ndim}

    def run(self, x: Any, y: Any, *, cfg: int, ctx: Any, axis: int) -> Any:
        total = ctx.ops.add(x, y)
        return ctx.ops.split(total, [total.shape[axis] // cfg] * cfg, axis)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        assert inv.kwargs["axis"] in (0, 1)
        return 2


class Named(Kernel[Blocks, str]):
    op_id = "tests.named"

    def run(self, x: Any, *, cfg: Blocks) -> str:
        return "run"

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> Blocks:
        return Blocks(1)

    def run_gpu(self, x: Any, *, cfg: Blocks) -> str:
        return "gpu"


class NamedOnCpu(Named):
    def run_cpu(self, x: Any, *, cfg: Blocks) -> str:
        return "cpu"

    def heuristic_cfg_cpu(self, inv: Invocation[Any, Any]) -> Blocks:
        return Blocks(6)

    def run_shard_map(self, x: Any, *, cfg: Blocks) -> str:
        return "shard_map"


class NamedBoth(NamedOnCpu):
    def run_shard_map_cpu(self, x: Any, *, cfg: Blocks) -> str:
        return "shard_map_cpu"


_HEURISTICS = ConfigSelectorChain(policy="heuristics")


def test_numpy_in_numpy_out() -> None:
    a, b = matrices()
    result = Executor(chain()[0])(Matmul(), a, b)
    assert type(result) is np.ndarray
    np.testing.assert_allclose(result, a @ b, rtol=1e-6)


def test_prepare_runs_and_tuples_come_out() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    executor = Executor(_HEURISTICS)
    result = executor(Split(), x, 2.0, axis=-2)
    assert [type(value) for value in result] == [np.ndarray, np.ndarray]
    np.testing.assert_array_equal(np.concatenate(result), x + 2)
    assert executor.choose_config(Split(), x, axis=-2) == 2
    assert len(executor(Split(), x, cfg=4)) == 4
    assert len(executor(Split(), x)) == 2


def test_tensors_of_a_context_give_tensors_and_the_context_goes_through() -> None:
    ctx = EagerExecutionContext()
    x = ctx.constant(np.ones((2, 5), np.float32))
    result = Executor(_HEURISTICS)(Split(), x)
    assert [type(value) for value in result] == [EagerTensor, EagerTensor]
    assert type(Executor(_HEURISTICS)(_Negate(), x.data, ctx=ctx)) is EagerTensor


def test_the_most_specific_variant_runs() -> None:
    executor = Executor(_HEURISTICS)
    x = np.ones(3)
    assert executor(Named(), x) == "run"
    assert executor(NamedOnCpu(), x) == "cpu"
    assert executor.choose_config(NamedOnCpu(), x) == Blocks(6)
    assert executor(NamedOnCpu(), x, method="shard_map") == "shard_map"
    assert executor(NamedBoth(), x, method="shard_map") == "shard_map_cpu"
    assert executor(NamedBoth(), x, method="other") == "cpu"


def test_choose_config_never_runs_the_kernel_unless_it_tunes() -> None:
    class Never(Kernel[int, Any]):
        op_id = "tests.never"

        def run(self, x: Any, *, cfg: int) -> Any:
            raise AssertionError

        def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
            return 5

    assert Executor(_HEURISTICS).choose_config(Never(), np.ones(2)) == 5
    assert Executor(_HEURISTICS).choose_config(Never(), np.ones(2), cfg=6) == 6


def test_explain_says_the_tier() -> None:
    executor = Executor(chain()[0])
    assert executor.explain(Matmul(), *matrices(), cfg=Blocks(2)).tier == "override"
    selection = executor.explain(Matmul(), *matrices())
    assert (selection.tier, [tier for tier, _ in selection.passed]) == (
        "autotune",
        ["override", "overlay", "memory", "persistent"],
    )

    class Fixed:
        def choose(self, inv: Any, kernel: Any) -> Any:
            return Blocks(2)

    fixed = Executor(Fixed())
    np.testing.assert_allclose(fixed(Matmul(), *matrices()), matrices()[0] @ matrices()[1], rtol=1e-6)
    with pytest.raises(KernelError, match="Fixed cannot explain a choice: use a ConfigSelectorChain"):
        fixed.explain(Matmul(), *matrices())


def test_an_op_without_a_name_has_its_classs() -> None:
    class Anonymous(Kernel[int, Any]):
        pass

    assert Anonymous().op_id == f"{__name__}.Anonymous"
    assert Anonymous("x").op_id == "x"
    with pytest.raises(NotImplementedError, match=r"Anonymous has no run\(\*args, cfg"):
        Anonymous().run(cfg=1)


def test_labels_stand_in_profiles_and_in_the_contexts_path(monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[str] = []

    class Where(Kernel[int, Any]):
        op_id = "tests.where"

        def run(self, x: Any, *, cfg: int, ctx: Any) -> Any:
            paths.append(ctx.module_path)
            return ctx.ops.negate(x)

        def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
            return 5

    executor, x = Executor(_HEURISTICS), np.ones((2, 3), np.float32)
    key = Invocation("tests.where", (x,)).call_key
    ctx = EagerExecutionContext()
    ctx.module_path = "model.layers.0"
    monkeypatch.delenv("TAPELINE_OPS_STAMP", raising=False)
    with profile() as calls:
        executor(Where(), x, ctx=ctx)
        monkeypatch.setenv("TAPELINE_OPS_STAMP", "json")
        executor(Where(), x, ctx=ctx)
        monkeypatch.setenv("TAPELINE_OPS_STAMP", "none")
        executor(Where(), x, ctx=ctx)
        monkeypatch.setenv("TAPELINE_OPS_STAMP", "hash")
        executor(Where(), x, ctx=ctx, stamp=False)
    label = f"tapeline_ops#tests.where@v0:{key}"
    assert paths[0] == f"model.layers.0.{label}"
    assert paths[1].startswith(f'model.layers.0.{label} {{"args":')
    assert '"cfg":5' in paths[1]
    assert paths[2:] == ["model.layers.0"] * 2
    assert ctx.module_path == "model.layers.0"
    assert [(call.label.partition(" ")[0], call.cfg) for call in calls] == [
        (label, 5),
        (label, 5),
        ("tests.where@v0", 5),
        ("tests.where@v0", 5),
    ]
    assert all(call.seconds > 0 for call in calls)
    monkeypatch.setenv("TAPELINE_OPS_STAMP", "jsn")
    with pytest.raises(KernelError, match="; available: hash, json, none; did you mean 'json'"):
        executor(Where(), x)


class Product(Kernel[int, Any]):
    """x [m, k] times y [k, n], and its mean, with a gradient by hand."""

    op_id = "tests.product"

    def run(self, x: Any, y: Any, *, cfg: int, scale: float = 1.0) -> Any:
        product = scale * (x @ y)
        return product, product.mean()

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1

    def fwd_with_residuals(self, x: Any, y: Any, *, cfg: int, scale: float = 1.0) -> Any:
        return self.run(x, y, cfg=cfg, scale=scale), (x, y)

    def vjp(
        self, residuals: Any, output: Any, d_output: Any, x: Any, y: Any, *, cfg: int, scale: float = 1.0
    ) -> tuple[Any, Any]:
        assert output[0].shape == d_output[0].shape == (x.shape[0], y.shape[1])
        kept_x, kept_y = residuals
        d = scale * (d_output[0] + d_output[1] / output[0].size)
        return d @ kept_y.T, kept_x.T @ d


def test_the_gradient_by_hand_has_one_order_of_arguments() -> None:
    x, y = matrices(4, 5, 3)
    (product, _), pullback = Executor(_HEURISTICS).value_and_pullback(Product(), x, y, scale=2.0)
    np.testing.assert_allclose(product, 2 * x @ y, rtol=1e-5)
    d = np.arange(12, dtype=np.float32).reshape(4, 3)
    dx, dy = pullback((d, np.float32(6.0)))
    np.testing.assert_allclose(dx, 2 * (d + 0.5) @ y.T, rtol=1e-5)
    np.testing.assert_allclose(dy, 2 * x.T @ (d + 0.5), rtol=1e-5)
    with pytest.raises(KernelError, match=r"'tests.matmul' has no fwd_with_residuals and vjp: give it both"):
        Executor(_HEURISTICS).value_and_pullback(Matmul(), x, y)


def test_a_gradient_takes_both_halves_and_fits_the_arguments() -> None:
    x, y = matrices(4, 5, 3)

    class Half(Product):
        fwd_with_residuals = Kernel.fwd_with_residuals

    with pytest.raises(KernelError, match="has vjp and no fwd_with_residuals: a gradient takes both"):
        Executor(_HEURISTICS)(Half(), x, y)

    def result(returned: Any) -> Any:
        class Bad(Product):
            def vjp(self, *args: Any, **kwargs: Any) -> Any:
                return returned

        return Executor(_HEURISTICS).value_and_pullback(Bad(), x, y)[1]((x @ y, np.float32(1)))

    assert result((None, y))[0] is None
    with pytest.raises(KernelError, match="vjp gave 1 gradients for 2 positional arguments: return a tuple"):
        result((x,))
    with pytest.raises(KernelError, match="vjp gave a ndarray for 2 positional arguments"):
        result(x)
    with pytest.raises(
        KernelError,
        match=r"gradient float32\[5,3\] for argument 0, which is float32\[4,5\]: it must have the argument's",
    ):
        result((y, y))

    class Lone(Product):
        def fwd_with_residuals(self, *args: Any, **kwargs: Any) -> Any:
            return x

    with pytest.raises(KernelError, match=r"fwd_with_residuals gave ndarray: return \(output, residuals\)"):
        Executor(_HEURISTICS).value_and_pullback(Lone(), x, y)


def test_a_tuner_does_not_tune_what_has_no_data() -> None:
    with pytest.raises(TuningError, match="cannot tune: an argument is a spec, which has no data: tune before"):
        Tuner().tune(lambda cfg: lambda x: x, Invocation("x", (np.ones(2),)).specs()[0], {}, [1])


def test_a_kernels_recorded_value_needs_its_context() -> None:
    tensor = Tensor()
    tensor.spec = TensorSpec((2, 3), "f32")
    with pytest.raises(KernelError, match="was given a recorded value and no context: pass ctx= that records"):
        Executor(_HEURISTICS)(_Negate(), tensor)


class _Negate(Kernel[int, Any]):
    op_id = "tests.negate"

    def run(self, x: Any, *, cfg: int, ctx: Any) -> Any:
        return ctx.ops.negate(x)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1


class _Named(Kernel[int, Any]):
    """{"sum": x + y, "product": 2 x y} of a mapping, and a gradient that names its parts in another order."""

    op_id = "tests.named"

    def run(self, parts: Any, *, cfg: int) -> Any:
        sums = {"sum": parts["x"] + parts["y"], "product": 2 * parts["x"] * parts["y"]}
        return sums if cfg == 1 else {name: sums[name] for name in ("product", "sum")}

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[int]:
        return [1, 2]

    def fwd_with_residuals(self, parts: Any, *, cfg: int) -> Any:
        return self.run(parts, cfg=cfg), None

    def vjp(self, residuals: Any, output: Any, d_output: Any, parts: Any, *, cfg: int) -> Any:
        d_sum, d_product = d_output["sum"], 2 * d_output["product"]
        return ({"y": d_sum + d_product * parts["x"], "x": d_sum + d_product * parts["y"]},)


def test_gradients_and_results_go_by_the_names_of_mappings() -> None:
    parts = {"x": np.full(2, 3.0, np.float32), "y": np.full(2, 5.0, np.float32)}
    _, pullback = Executor(_HEURISTICS).value_and_pullback(_Named(), parts)
    ones = np.ones(2, np.float32)
    (slopes,) = pullback({"product": 0 * ones, "sum": ones})
    assert list(slopes) == ["x", "y"]
    (slopes,) = pullback({"product": ones, "sum": ones})
    np.testing.assert_array_equal(slopes["x"], 11 * ones)
    np.testing.assert_array_equal(slopes["y"], 7 * ones)
    selection = Executor(chain(lambda cfg: 1.0 / cfg)[0]).explain(_Named(), parts)
    assert selection.entry is not None
    assert [measurement.status for measurement in selection.entry.measurements] == ["ok", "ok"]
