"""Gradients of mixers with a state: a scan over many tokens has those of its steps."""

import numpy as np
import pytest

from compile_dag.gradient import value_and_gradient
from lang_core import EagerExecutionContext, ExecutionContext, Tensor
from transformer_core import GateOrder, Mamba2, Mamba2Sizes, ShortConv, StateMixer

_SIZES = Mamba2Sizes(heads=4, head_size=3, groups=2, state_size=5, taps=3, gate=GateOrder.GATE_FIRST)
_MIXERS = {"mamba2": Mamba2(6, _SIZES), "short_conv": ShortConv(6, 3, bias=True)}
_TOKENS = 35  # more than a chunk


def _loss(ctx: ExecutionContext, parts: list[Tensor]) -> Tensor:
    y = ctx.ops.concat(parts, 1)
    return ctx.ops.mean(ctx.ops.mul(y, y))


@pytest.mark.parametrize("name", _MIXERS)
def test_a_scan_has_the_gradients_of_its_steps(name: str) -> None:
    mixer, ctx, rng = _MIXERS[name], EagerExecutionContext(), np.random.default_rng(5)
    arrays = {
        path: (rng.standard_normal(parameter.spec.shape) / 2).astype(np.float32)
        for path, parameter in mixer.named_parameters()
    }
    x = ctx.constant(rng.standard_normal((1, _TOKENS, 6)).astype(np.float32))

    def scanned(ctx: ExecutionContext, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        with ctx.parameters_from(parameters):
            return _loss(ctx, [mixer(ctx, x)[0]])

    def stepped(ctx: ExecutionContext, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        with ctx.parameters_from(parameters):
            return _loss(ctx, _steps(ctx, mixer, x))

    given = {path: ctx.constant(array) for path, array in arrays.items()}
    (loss, (slopes,)), (other, (wanted,)) = (value_and_gradient(run)(ctx, given, x) for run in (scanned, stepped))
    assert float(loss) == pytest.approx(float(other), rel=1e-5)
    for path, slope in wanted.items():
        scale = max(1e-6, float(np.abs(slope.numpy()).max()))
        np.testing.assert_allclose(slopes[path].numpy(), slope.numpy(), rtol=0, atol=1e-4 * scale, err_msg=path)
        assert slope.numpy().any(), path


def _steps(ctx: ExecutionContext, mixer: StateMixer, x: Tensor) -> list[Tensor]:
    layout = mixer.cache_layout(1, 0)
    state, results = layout.make(*(ctx.ops.zeros(spec.shape, spec.dtype) for spec in layout.specs.values())), []
    for token in range(_TOKENS):
        y, state = mixer(ctx, ctx.ops.slice_axis(x, 1, token, token + 1), state)
        results.append(y)
    return results
