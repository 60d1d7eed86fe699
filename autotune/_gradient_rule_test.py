"""Kernels with a gradient of their own, recorded and eager: their rule is used, and it is the gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune import ConfigSelectorChain, Executor, Invocation, Kernel, KernelError
from compile_dag import record
from compile_dag.gradient import value_and_gradient
from lang_core import EagerExecutionContext, TensorSpec

_CALLS: list[str] = []


class Gated(Kernel[str, Any]):
    """(silu(x @ w), x @ w) with x [m, k] and w [k, n]; ``by_hand`` says which of its gradients is meant."""

    op_id = "tests.gated"

    def run(self, x: Any, w: Any, *, cfg: str, ctx: Any, scale: float = 1.0) -> Any:
        product = ctx.ops.mul(ctx.ops.dot_general(x, w, ((1,), (0,))), scale)
        return ctx.ops.silu(product), product

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> str:
        return "plain"


class GatedByHand(Gated):
    op_id = "tests.gated_by_hand"

    def fwd_with_residuals(self, x: Any, w: Any, *, cfg: str, ctx: Any, scale: float = 1.0) -> Any:
        output = self.run(x, w, cfg=cfg, ctx=ctx, scale=scale)
        return output, ctx.ops.logistic(output[1])

    def vjp(
        self, residuals: Any, output: Any, d_output: Any, x: Any, w: Any, *, cfg: str, ctx: Any, scale: float = 1.0
    ) -> Any:
        _CALLS.append(type(ctx).__name__)
        ops = ctx.ops
        assert [d.shape for d in d_output] == [y.shape for y in output] == [(4, 3), (4, 3)]
        slope = ops.mul(residuals, ops.add(ops.mul(output[1], ops.sub(1.0, residuals)), 1.0))
        d = ops.mul(ops.add(ops.mul(d_output[0], slope), d_output[1]), scale)
        return ops.dot_general(d, w, ((1,), (1,))), ops.dot_general(x, d, ((0,), (0,)))


def _arrays() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    return random.standard_normal((4, 5)).astype(np.float32), random.standard_normal((5, 3)).astype(np.float32)


_EXECUTOR = Executor(ConfigSelectorChain(policy="heuristics"))


def _loss(kernel: Kernel[Any, Any], both: bool) -> Any:
    def loss(ctx: Any, x: Any, w: Any) -> Any:
        gate, product = _EXECUTOR(kernel, x, w, ctx=ctx, scale=0.5)
        total = ctx.ops.sum(ctx.ops.mul(gate, gate))
        return ctx.ops.add(total, ctx.ops.sum(ctx.ops.sin(product))) if both else total

    return loss


def _truth(both: bool) -> Any:
    def loss(x: Any, w: Any) -> Any:
        product = 0.5 * x @ w
        total = jnp.sum(jax.nn.silu(product) ** 2)
        return total + jnp.sum(jnp.sin(product)) if both else total

    return jax.grad(loss, argnums=(0, 1))(*_arrays())


@pytest.mark.parametrize("both", [True, False], ids=["both results used", "one result used"])
@pytest.mark.parametrize("kernel", [Gated(), GatedByHand()], ids=["ops", "by hand"])
def test_gradients_of_kernels_are_those_of_jax(kernel: Kernel[Any, Any], both: bool) -> None:
    _CALLS.clear()
    ctx = EagerExecutionContext()
    inputs = [ctx.constant(array) for array in _arrays()]
    _, gradients = value_and_gradient(_loss(kernel, both), wrt=(0, 1))(ctx, *inputs)
    for ours, theirs in zip(gradients, _truth(both), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=2e-5, atol=1e-6)
    assert (["EagerExecutionContext"] if isinstance(kernel, GatedByHand) else []) == _CALLS


def test_recorded_forward_and_backward_stand_in_the_kernels_scope() -> None:
    _CALLS.clear()
    step = value_and_gradient(_loss(GatedByHand(), both=True), wrt=(0, 1))
    specs = [TensorSpec(array.shape, "f32") for array in _arrays()]

    def recorded(ctx: Any, x: Any, w: Any) -> Any:
        loss, gradients = step(ctx, x, w)
        return {"loss": loss, "dx": gradients[0], "dw": gradients[1]}

    graph = record(recorded, *specs)
    assert _CALLS == ["GraphExecutionContext"]
    assert {node.path.partition(":")[0] for node in graph.nodes} == {"", "tapeline_ops#tests.gated_by_hand@v0"}


def test_a_result_that_a_recording_does_not_know_is_refused() -> None:
    class Nested(GatedByHand):
        def run(self, x: Any, w: Any, *, cfg: str, ctx: Any, scale: float = 1.0) -> Any:
            return {"gate": super().run(x, w, cfg=cfg, ctx=ctx, scale=scale)[0]}

    with pytest.raises(KernelError, match=r"gives a tensor, or a tuple of tensors, to a recording; found dict"):
        record(lambda ctx, x, w: _EXECUTOR(Nested(), x, w, ctx=ctx), *[TensorSpec(a.shape, "f32") for a in _arrays()])
