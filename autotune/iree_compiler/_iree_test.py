"""Kernels compiled by IREE, checked against the eager context and JAX."""

import doctest
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune import (
    ConfigSelectionError,
    ConfigSelectorChain,
    Executor,
    Invocation,
    Kernel,
    KernelError,
    PersistentCache,
    Tuner,
    autotune_lowered,
    compile_environment,
    find_labels_in_lowered,
    forget_invocations,
    iree_compiler,
)
from autotune.iree_compiler import IreeCompiler
from compile_dag import record
from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import (
    Argument,
    EagerExecutionContext,
    EntryPoint,
    TensorSpec,
)


class Pair(NamedTuple):
    product: Any
    largest: Any


class Blocked(Kernel[int, Pair]):
    """x [m, k] times w [n, k], in cfg blocks of n, and each row's largest value; ``prepare`` casts x and flips w."""

    op_id = "tests.blocked"

    def prepare(self, x: Any, w: Any, *, flip: bool = False) -> Any:
        return (x, w[::-1].copy() if flip else w), {}

    def run(self, x: Any, w: Any, *, cfg: int, ctx: Any) -> Pair:
        size = w.shape[0] // cfg
        parts = [ctx.ops.linear(x, ctx.ops.slice_axis(w, 0, i * size, (i + 1) * size)) for i in range(cfg)]
        product = ctx.ops.concat(parts, 1)
        return Pair(product, {"row": ctx.ops.max(product, 1)})

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[int]:
        return [1, 2, 5, 3]


class OnCpu(Blocked):
    op_id = "tests.on_cpu"

    def run_cpu(self, x: Any, w: Any, *, cfg: int, ctx: Any) -> Pair:
        pair = self.run(x, w, cfg=cfg, ctx=ctx)
        return Pair(ctx.ops.negate(pair.product), pair.largest)


def _arrays() -> tuple[Any, Any]:
    random = np.random.default_rng(1)
    return random.standard_normal((4, 7)).astype(np.float32), random.standard_normal((6, 7)).astype(np.float32)


class Preferring(Tuner[Any]):
    """Tuner for which later candidates are faster."""

    def __init__(self) -> None:
        super().__init__(warmup=0, iters=1, rounds=1)
        self.measured = 0

    def measure(self, fn: Any, *args: Any, **kwargs: Any) -> float:
        self.measured += 1
        assert type(fn(*args, **kwargs).product) is np.ndarray
        return 1.0 / self.measured


_HEURISTICS: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(policy="heuristics")


@pytest.mark.parametrize("compiler", ["iree", "jax"])
def test_prepare_and_the_platforms_variant_run_and_structures_come_out(compiler: str) -> None:
    x, w = _arrays()
    compiled = Executor(_HEURISTICS, compiler=compiler).compile(OnCpu(), x, w, flip=True)
    for scale in (1, 3):
        result = compiled(scale * x, w, flip=True)
        assert type(result) is Pair
        np.testing.assert_allclose(result.product, -scale * x @ w[::-1].T, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(result.largest["row"], (scale * x @ w[::-1].T).max(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(compiled(x, w).product, -x @ w.T, rtol=1e-5, atol=1e-5)
    assert (compiled.cfg, compiled.compiler) == (1, compiler)


def test_candidates_are_timed_compiled_and_remembered_for_iree_alone(tmp_path: Path) -> None:
    tuner = Preferring()
    made: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(
        tuner=tuner, persistent=PersistentCache(path=tmp_path / "k.json")
    )
    executor = Executor(made)
    x, w = _arrays()
    compiled = executor.compile(Blocked(), x, w)
    assert (compiled.cfg, tuner.measured) == (3, 5), "three candidates, and the best beside the first once more"
    (entry,) = made.cache.entries()
    assert [(m.cfg, m.status) for m in entry.measurements] == [(1, "ok"), (2, "ok"), (5, "rejected"), (3, "ok")]
    assert (entry.environment["runtime"], entry.key.device.partition("|")[0]) == ("iree", "iree")
    assert "iree-base-compiler" in entry.environment["versions"][0]
    assert any("target-cpu" in flag for flag in entry.environment["flags"])
    assert executor.compile(Blocked(), x, w).cfg == 3
    assert tuner.measured == 5
    other = ConfigSelectorChain(policy="cached-only", persistent=made.persistent)
    assert Executor(other).compile(Blocked(), x, w).cfg == 3
    with pytest.raises(ConfigSelectionError, match="has the call of another device, or other versions or flags"):
        Executor(other).choose_config(Blocked(), x, w)
    more = IreeCompiler(flags=["--iree-opt-level=O1"])
    with pytest.raises(ConfigSelectionError, match="has the call of another device, or other versions or flags"):
        Executor(other).compile(Blocked(), x, w, compiler=more)
    with compile_environment(IreeCompiler().environment()):
        assert Executor(other).choose_config(Blocked(), x, w) == 3
    assert executor.compile(Blocked(), x, w, cfg=2).cfg == 2
    assert executor.compile(Blocked(), x, w).cfg == 3, "cfg= does not leak"


def test_specs_will_do_where_nothing_is_tuned() -> None:
    x, _ = _arrays()
    compiled = Executor(_HEURISTICS).compile(_Negate(), TensorSpec((2, 3), "f32"))
    np.testing.assert_array_equal(compiled(x[:2, :3]), -x[:2, :3])
    np.testing.assert_array_equal(compiled(x), -x)


class _Halves(Kernel[int, Any]):
    """Negates by halves; the number of columns is the configuration. One static argument."""

    op_id = "tests.halves"

    def run(self, x: Any, scale: float = 1.0, *, cfg: int, ctx: Any) -> Any:
        assert x.shape[1] == cfg, "chosen for these arrays"
        return ctx.ops.mul(x, -scale)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return inv.args[0].shape[1]


@pytest.mark.parametrize("compiler", ["iree", "jax"])
def test_other_shapes_are_compiled_again_and_kept(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(policy="heuristics")
    compiled = Executor(chain, compiler=compiler).compile(_Halves(), np.zeros((2, 3), np.float32), 2.0)
    monkeypatch.setattr(type(compiled), "KEPT", 2)
    x = np.arange(20, dtype=np.float32)
    for shape in ((2, 3), (4, 5), (5, 4), (4, 5), (2, 3), (1, 7)):
        part = x[: shape[0] * shape[1]].reshape(shape)
        np.testing.assert_array_equal(compiled(part, 2.0), -2 * part)
    kept = {specs[0].shape: cfg for specs, cfg in compiled.configurations().items()}
    assert kept == {(2, 3): 3, (4, 5): 5, (1, 7): 7}, "the one that was not used for longest went"
    halves = np.float16(x[:6]).reshape(2, 3)
    np.testing.assert_array_equal(compiled(halves, 2.0), -2 * halves)
    with pytest.raises(KernelError, match=r"was made for \(\('\*', 2.0\), \{\}\).*compile it for these"):
        compiled(x.reshape(4, 5), 3.0)


def test_a_given_configuration_serves_other_shapes_too() -> None:
    x, w = _arrays()
    compiled = Executor(_HEURISTICS).compile(Blocked(), x, w, cfg=2)
    np.testing.assert_allclose(compiled(x[:1], w).product, x[:1] @ w.T, rtol=1e-5, atol=1e-5)
    assert set(compiled.configurations().values()) == {2}


class _Negate(Kernel[int, Any]):
    op_id = "tests.negate"

    def run(self, x: Any, *, cfg: int, ctx: Any, times: int = 1) -> Any:
        for _ in range(times):
            x = ctx.ops.negate(x)
        return x

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1


def test_other_static_arguments_are_refused() -> None:
    x, _ = _arrays()
    compiled = Executor(_HEURISTICS).compile(_Negate(), x, times=2)
    np.testing.assert_array_equal(compiled(x, times=2), x)
    with pytest.raises(KernelError, match=r"the compiled tests.negate@v0 was made for .*'times': 2.*found .*: 3"):
        compiled(x, times=3)
    with pytest.raises(KernelError, match="was made for"):
        compiled(x)


class _InJax(Kernel[int, Any]):
    op_id = "tests.in_jax"

    def run(self, x: Any, w: Any, *, cfg: int, scale: float = 1.0) -> Any:
        return jnp.tanh(scale * (x @ w.T))

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1

    def fwd_with_residuals(self, x: Any, w: Any, *, cfg: int, scale: float = 1.0) -> Any:
        return self.run(x, w, cfg=cfg, scale=scale), None

    def vjp(self, residuals: Any, output: Any, d_output: Any, x: Any, w: Any, *, cfg: int, scale: float = 1.0) -> Any:
        d = d_output * (1 - output**2) * scale
        return d @ w * 2, d.T @ x  # twice the gradient, to be known again


def test_a_kernel_of_jax_is_jitted_with_its_gradient() -> None:
    x, w = _arrays()
    compiled = Executor(_HEURISTICS).compile(_InJax(), x, w, scale=0.5)
    assert compiled.compiler == "jax"
    np.testing.assert_allclose(compiled(x, w, scale=0.5), np.tanh(0.5 * x @ w.T), rtol=1e-5)
    result = jax.grad(lambda x: compiled(x, w, scale=0.5).sum())(jnp.asarray(x))
    truth = jax.grad(lambda x: jnp.tanh(0.5 * (x @ w.T)).sum())(jnp.asarray(x))
    np.testing.assert_allclose(result, 2 * truth, rtol=1e-5)
    with pytest.raises(KernelError, match=r"'tests.in_jax' has no argument ctx: it is not written in ctx.ops"):
        Executor(_HEURISTICS).compile(_InJax(), x, w, compiler="iree")
    with pytest.raises(KernelError, match=r"unknown compiler 'ire'; available: iree, jax; did you mean 'iree'"):
        Executor(_HEURISTICS).compile(_InJax(), x, w, compiler="ire")


@pytest.mark.parametrize("mode", ["hash", "json"])
def test_labels_go_through_lowering_and_what_a_module_uses_is_tuned(
    mode: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "1")
    monkeypatch.setenv("TAPELINE_OPS_STAMP", mode)
    monkeypatch.setenv("TAPELINE_KERNEL_CACHE", str(tmp_path))
    forget_invocations()
    made: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(tuner=Preferring())
    executor = Executor(made)
    x, w = _arrays()
    compiled: Any = Executor(_HEURISTICS).compile(_Negate(), x)
    assert find_labels_in_lowered(compiled.function.text) == [compiled.label.partition(" ")[0]]

    def model(ctx: Any, x: Any, w: Any) -> Any:
        with ctx.block("layers.0"):
            return executor(_NotPrepared(), x, w, ctx=ctx).product

    graph = record(model, TensorSpec(x.shape, "f32"), TensorSpec(w.shape, "f32"))
    labels = {node.path.partition(" ")[0] for node in graph.nodes}
    assert labels == {f"tapeline_ops#tests.not_prepared@v0:{Invocation('', (x, w)).call_key}"}
    text = _text(model, x, w)
    tuned = autotune_lowered(text, made)
    assert [(entry.op_id_v, entry.cfg) for entry in tuned.entries] == [("tests.not_prepared@v0", 3)]
    assert tuned.entries[0].device.startswith("iree|cpu|local-task|")
    assert len(record(model, TensorSpec(x.shape, "f32"), TensorSpec(w.shape, "f32")).nodes) > len(graph.nodes)
    forget_invocations()


class _NotPrepared(Blocked):
    op_id = "tests.not_prepared"
    prepare = Kernel.prepare


def _text(model: Any, *arrays: Any) -> str:
    arguments = tuple(Argument(f"x{i}", TensorSpec(array.shape, "f32")) for i, array in enumerate(arrays))
    entry_point = EntryPoint("main", lambda ctx, *tensors: {"y": model(ctx, *tensors)}, arguments)
    pieces: list[str] = []
    lower_module([entry_point], pieces.append, ExternalParameters())
    return "".join(pieces)


def test_the_example() -> None:
    results = doctest.testmod(iree_compiler)
    assert (results.attempted, results.failed) == (2, 0)


def test_eager_and_both_engines_agree() -> None:
    x, w = _arrays()
    eager = Executor(_HEURISTICS)(Blocked(), x, w, ctx=EagerExecutionContext())
    for compiler in ("iree", "jax"):
        for cfg in (1, 2, 3):
            compiled = Executor(_HEURISTICS).compile(Blocked(), x, w, cfg=cfg, compiler=compiler)(x, w)
            np.testing.assert_allclose(compiled.product, eager.product.numpy(), rtol=1e-5, atol=1e-5)
