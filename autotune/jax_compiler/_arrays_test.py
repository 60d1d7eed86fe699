"""Kernels that are written in ctx.ops, on JAX's arrays: called, tuned, differentiated by hand, compiled."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune import (
    ConfigSelectorChain,
    Executor,
    Invocation,
    Kernel,
    PersistentCache,
    Tuner,
    compiler_named,
    host_environment,
)
from lang_core import EagerExecutionContext, EagerTensor, Tensor


class Both(NamedTuple):
    """Two results."""

    product: Any
    largest: Any


class Scaled(Kernel[int, Both]):
    """``scale * (x @ w.T)`` in blocks of outputs, its largest element, and a gradient by hand."""

    op_id = "tests.scaled"

    def prepare(self, x: Any, w: Any, scale: float = 1.0) -> Any:
        return (x, w), {"scale": float(scale)}

    def run(self, x: Any, w: Any, *, cfg: int, ctx: Any, scale: float) -> Both:
        parts = [ctx.ops.linear(x, part) for part in ctx.ops.split(w, (w.shape[0] // cfg,) * cfg, 0)]
        product = ctx.ops.mul(ctx.ops.concat(parts, -1), scale)
        return Both(product, ctx.ops.max(product))

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[int]:
        return [1, 2, 3]

    def fwd_with_residuals(self, x: Any, w: Any, *, cfg: int, ctx: Any, scale: float) -> Any:
        return self.run(x, w, cfg=cfg, ctx=ctx, scale=scale), None

    def vjp(
        self, residuals: Any, output: Any, d_output: Any, x: Any, w: Any, *, cfg: int, ctx: Any, scale: float
    ) -> Any:
        ops = ctx.ops
        largest = ops.cast(ops.equal(output.product, output.largest), "f32")
        given = ops.mul(ops.add(d_output[0], ops.mul(largest, d_output[1])), scale)
        return ops.dot_general(given, w, ((1,), (0,))), ops.dot_general(given, x, ((0,), (0,)))


class Later(Tuner[Any]):
    """Tuner for which later candidates are faster; checks that they get NumPy's arrays."""

    def __init__(self) -> None:
        super().__init__(warmup=0, iters=1, rounds=1)
        self.measured = 0

    def measure(self, fn: Any, *args: Any, **kwargs: Any) -> float:
        self.measured += 1
        assert all(type(arg) is np.ndarray for arg in args)
        return 1.0 / self.measured


def _arrays() -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    return random.standard_normal((4, 5)).astype(np.float32), random.standard_normal((6, 5)).astype(np.float32)


def test_jaxs_arrays_in_jaxs_arrays_out() -> None:
    x, w = _arrays()
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    for mixed in ((jnp.asarray(x), jnp.asarray(w)), (jnp.asarray(x), w), (x, jnp.asarray(w))):
        result = executor(Scaled(), *mixed, scale=2.0)
        assert type(result) is Both
        assert all(isinstance(value, jax.Array) for value in result)
        np.testing.assert_allclose(result.product, 2 * x @ w.T, rtol=1e-6)
        np.testing.assert_allclose(result.largest, (2 * x @ w.T).max(), rtol=1e-6)
    assert type(executor(Scaled(), x, w).product) is np.ndarray


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32"])
def test_dtypes_come_back_as_they_were(dtype: str) -> None:
    x = jnp.asarray(np.arange(20).reshape(4, 5), dtype)
    w = jnp.asarray(np.arange(30).reshape(6, 5) % 3, dtype)
    result = Executor(ConfigSelectorChain(policy="heuristics"))(_Summed(), x, w)
    assert (result.dtype, result.shape) == (x.dtype, (4, 6))
    np.testing.assert_array_equal(
        np.asarray(result, np.float32), np.asarray(x, np.float32) @ np.asarray(w, np.float32).T
    )


class _Summed(Kernel[int, Tensor]):
    op_id = "tests.summed"

    def run(self, x: Any, w: Any, *, cfg: int, ctx: Any) -> Tensor:
        return ctx.ops.linear(x, w)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1


def test_the_choice_is_the_one_for_where_it_runs(tmp_path: Path) -> None:
    x, w = _arrays()
    cache: PersistentCache[Any] = PersistentCache(path=tmp_path / "k.json")
    executor = Executor(ConfigSelectorChain(tuner=Later(), persistent=cache))
    executor(Scaled(), jnp.asarray(x), jnp.asarray(w))
    (entry,) = cache.entries()
    assert (entry.cfg, entry.key.device) == (3, host_environment().fingerprint)
    assert executor.explain(Scaled(), x, w).tier == "memory"
    assert executor.explain(Scaled(), jnp.asarray(x), w).cfg == 3
    assert executor.choose_config(Scaled(), jnp.asarray(x), jnp.asarray(w)) == 3


def test_a_tensor_of_the_callers_context_stays_one() -> None:
    x, w = _arrays()
    ctx = EagerExecutionContext()
    result = Executor(ConfigSelectorChain(policy="heuristics"))(Scaled(), jnp.asarray(x), w, ctx=ctx)
    assert isinstance(result.product, EagerTensor)
    np.testing.assert_allclose(result.product.numpy(), x @ w.T, rtol=1e-6)


def test_the_gradient_by_hand_is_jaxs() -> None:
    x, w = (jnp.asarray(array) for array in _arrays())
    g = jnp.asarray(np.random.default_rng(4).standard_normal((4, 6)).astype(np.float32))
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    _, pullback = executor.value_and_pullback(Scaled(), x, w, scale=3.0)
    result = pullback(Both(g, jnp.zeros(())))
    _, wanted = jax.vjp(lambda x, w: 3.0 * x @ w.T, x, w)
    for ours, theirs in zip(result, wanted(g), strict=True):
        assert isinstance(ours, jax.Array)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compiler", ["iree", "jax"])
def test_what_is_compiled_takes_and_gives_jaxs_arrays(compiler: str) -> None:
    x, w = _arrays()
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    compiled = executor.compile(Scaled(), jnp.asarray(x), jnp.asarray(w), scale=2.0, compiler=compiler)
    result = compiled(jnp.asarray(x), w, scale=2.0)
    assert all(isinstance(value, jax.Array) for value in result)
    np.testing.assert_allclose(result.product, 2 * x @ w.T, rtol=1e-5)
    assert all(isinstance(value, np.ndarray | np.generic) for value in compiled(x, w, scale=2.0))


def test_the_environment_of_jax_needs_no_array() -> None:
    """Entries of JAX are compared with the environment of no arrays."""
    compiler = compiler_named("jax")
    assert compiler.environment([]) == compiler.environment([jnp.ones(3)])
    assert compiler.environment([]).fingerprint.startswith("jax|")
