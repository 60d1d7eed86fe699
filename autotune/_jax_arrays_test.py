"""Kernels on JAX's arrays: inside of jit and grad, with a gradient of their own, never tuned while JAX traces."""

from typing import Any

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
    Tuner,
    TuningError,
    device_fingerprint,
    find_labels_in_lowered,
    policy_override,
)
from autotune._kernels_testing import chain, matrices

_CALLS: list[str] = []


class Affine(Kernel[int, Any]):
    """(x @ w * scale + b, its largest value), where b is only added to be ignored by the gradient."""

    op_id = "tests.affine"

    def run(self, x: Any, w: Any, b: Any, *, cfg: int, scale: float = 1.0) -> Any:
        _CALLS.append("run")
        y = jnp.concatenate([part @ w for part in jnp.array_split(x, cfg)]) * scale + b
        return y, jnp.sum(y, axis=1)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[int]:
        return [1, 2, 3]


class AffineByHand(Affine):
    op_id = "tests.affine_by_hand"

    def fwd_with_residuals(self, x: Any, w: Any, b: Any, *, cfg: int, scale: float = 1.0) -> Any:
        return self.run(x, w, b, cfg=cfg, scale=scale), {"x": x, "w": w}

    def vjp(
        self, residuals: Any, output: Any, d_output: Any, x: Any, w: Any, b: Any, *, cfg: int, scale: float = 1.0
    ) -> Any:
        assert output[0].shape == d_output[0].shape
        assert output[1].shape == d_output[1].shape == (x.shape[0],)
        d = (d_output[0] + d_output[1][:, None]) * scale
        _CALLS.append("vjp")
        return d @ residuals["w"].T, residuals["x"].T @ d, None


def _arrays() -> tuple[Any, Any, Any]:
    x, w = matrices(4, 5, 3)
    return jnp.asarray(x), jnp.asarray(w), jnp.arange(3.0)


def _loss(kernel: Affine, executor: Executor) -> Any:
    def loss(x: Any, w: Any, b: Any) -> Any:
        y, sums = executor(kernel, x, w, b, scale=0.5)
        return jnp.sum(jnp.sin(y)) + jnp.sum(sums**2)

    return loss


@pytest.mark.parametrize("wrapped", ["plain", "jit"])
def test_the_kernels_gradient_is_the_one_of_jax(wrapped: str) -> None:
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    arrays = _arrays()
    around = jax.jit if wrapped == "jit" else lambda f: f
    _CALLS.clear()
    ours = around(jax.grad(_loss(AffineByHand(), executor), argnums=(0, 1, 2)))(*arrays)
    assert "vjp" in _CALLS
    truth = jax.grad(_loss(Affine(), executor), argnums=(0, 1, 2))(*arrays)
    assert [g.shape for g in ours] == [(4, 5), (5, 3), (3,)]
    np.testing.assert_allclose(ours[0], truth[0], rtol=1e-5)
    np.testing.assert_allclose(ours[1], truth[1], rtol=1e-5)
    assert not ours[2].any(), "None is no gradient"


def test_arguments_that_are_no_floats_and_keywords_have_no_gradient() -> None:
    class Picked(Kernel[int, Any]):
        op_id = "tests.picked"

        def run(self, x: Any, rows: Any, *, cfg: int, bias: Any) -> Any:
            return x[rows] * bias

        def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
            return 1

        def fwd_with_residuals(self, x: Any, rows: Any, *, cfg: int, bias: Any) -> Any:
            return self.run(x, rows, cfg=cfg, bias=bias), None

        def vjp(self, residuals: Any, output: Any, d_output: Any, x: Any, rows: Any, *, cfg: int, bias: Any) -> Any:
            return jnp.zeros_like(x).at[rows].add(d_output * bias), None

    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    x, rows = jnp.arange(12.0).reshape(4, 3), jnp.array([2, 0])
    result = jax.grad(lambda x, bias: executor(Picked(), x, rows, bias=bias).sum(), argnums=(0, 1))(x, jnp.array(3.0))
    np.testing.assert_array_equal(result[0], [[3, 3, 3], [0, 0, 0], [3, 3, 3], [0, 0, 0]])
    assert result[1] == 0


def test_nothing_is_tuned_while_jax_traces() -> None:
    made, events, clock = chain(lambda cfg: 1.0 / cfg)
    executor = Executor(made)
    x, w, b = _arrays()
    y, _ = jax.jit(lambda x, w, b: executor(Affine(), x, w, b))(x, w, b)
    np.testing.assert_allclose(y, x @ w + b, rtol=1e-5)
    assert clock.tuned == []
    assert [name for name, _ in events] == ["autotune_refused", "heuristics"]
    assert events[0][1]["reason"] == "JAX traces the arguments, which have no data"

    def over_constants(scale: Any) -> Any:
        return executor(Affine(), x, w, b)[0] * scale

    jax.jit(over_constants)(2.0)
    assert clock.tuned == []
    assert events[-2][1]["reason"] == "JAX traces a function now"
    assert executor.explain(Affine(), x, w, b).tier == "autotune"
    assert executor.explain(Affine(), x, w, b).cfg == 3
    seen: list[Any] = []
    jax.jit(lambda x, w, b: seen.append(executor.choose_config(Affine(), x, w, b)) or x)(x, w, b)
    assert seen == [3], "what was tuned before holds while JAX traces"
    with policy_override(made, allow_heuristics=False), pytest.raises(ConfigSelectionError, match="JAX traces the arg"):
        jax.jit(lambda x: executor(Affine(), x, w, b))(x[:2])


def test_a_tuner_refuses_tracers() -> None:
    def traced(x: Any) -> Any:
        with pytest.raises(TuningError, match="cannot tune: JAX traces the arguments, which have no data"):
            Tuner().autotune(lambda cfg: lambda x: x, (x,), {}, [1])
        return x

    jax.jit(traced)(jnp.ones(3))


def test_the_devices_of_jax_are_others_than_the_hosts() -> None:
    x = jnp.ones((2, 3))
    assert device_fingerprint(x).startswith("jax|cpu|")
    assert device_fingerprint(x) != device_fingerprint(np.ones((2, 3)))
    inside: list[str] = []
    jax.jit(lambda x: inside.append(device_fingerprint(x)) or x)(x)
    assert inside == [device_fingerprint(x)]


@pytest.mark.parametrize("mode", ["hash", "json", "none"])
def test_labels_are_found_again_in_what_jax_lowers(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPELINE_OPS_STAMP", mode)
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    arrays = _arrays()
    lowered = jax.jit(lambda *a: executor(AffineByHand(), *a)[0]).lower(*arrays)
    key = Invocation("tests.affine_by_hand", arrays).call_key
    expected = [] if mode == "none" else [f"tapeline_ops#tests.affine_by_hand@v0:{key}"]
    assert find_labels_in_lowered(lowered) == expected


def test_a_kernel_in_ops_takes_jaxs_arrays_with_data_and_without() -> None:
    class InOps(Kernel[int, Any]):
        op_id = "tests.in_ops"

        def run(self, x: Any, *, cfg: int, ctx: Any) -> Any:
            return ctx.ops.negate(x)

        def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
            return 1

    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    result = executor(InOps(), jnp.ones(2))
    assert isinstance(result, jax.Array)
    assert result.tolist() == [-1, -1]
    assert jax.jit(lambda x: executor(InOps(), x))(jnp.ones(2)).tolist() == [-1, -1]


def test_the_backward_pass_is_timed_and_compared_where_asked() -> None:
    class WrongGradient(AffineByHand):
        op_id = "tests.wrong_gradient"

        def vjp(self, *args: Any, cfg: int, **kwargs: Any) -> Any:
            dx, dw, _ = super().vjp(*args, cfg=cfg, **kwargs)
            return (dx + 1 if cfg == 3 else dx), dw, None

    for backward, best in ((False, 3), (True, 2)):
        made, _, _ = chain(lambda cfg: 1.0 / cfg)
        with policy_override(made, validate_backward=backward):
            assert Executor(made).choose_config(WrongGradient(), *_arrays()) == best
