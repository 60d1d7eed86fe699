"""Typed slots of a gated delta rule, and values that a block wraps."""

from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext, OpError, Tensor, TensorSpec, TraceEscapeError
from transformer_core import delta_layout
from transformer_core.flow import Block, CompileProfile, FlowContext, FlowValue, ModelFlow

_SIZES = {"B": 1, "T": 3}
_X = np.random.default_rng(0).standard_normal((1, 3, 6)).astype(np.float32)


class Projected(Block):
    """Computes q, k, v, g and beta, and stores them for the next stage."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        (x,), ops = values, flow.ctx.ops
        q, k, v = (flow.wrap(part) for part in ops.split(ops.reshape(x.tensor, (1, 3, 3, 2)), (1, 1, 1), 2))
        g = flow.wrap(ops.negate(ops.reshape(ops.slice_axis(x.tensor, 2, 0, 1), (1, 3, 1))))
        beta = flow.wrap(ops.logistic(ops.reshape(ops.slice_axis(x.tensor, 2, 1, 2), (1, 3, 1))))
        flow.store_delta_inputs(q, k, v, g, beta)
        if self.quiet:
            flow.store_delta_inputs(q, k, v, None, flow.zero_beta())
        assert flow.node_shape(q) == flow.node_shape(q.tensor) == (1, 3, 1, 2)
        return x


class Rule(Block):
    """Runs the gated delta rule on what the stage before has stored."""

    def cache_layout(self, batch: int, capacity: int) -> Any:
        """Returns the layout of the state."""
        return delta_layout(TensorSpec((batch, 2, 6), "f32"), TensorSpec((batch, 1, 2, 2), "f32"))

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        o = flow.run_delta(self)
        return flow.wrap(flow.ctx.ops.reshape(o.tensor, (1, 3, 2)), TensorSpec((1, 3, 2), "f32"))


def _results(recipe: ModelFlow, memory: Any = "caches") -> dict[str, np.ndarray]:
    profile = CompileProfile(name="step", sequence=3, max_sequence=8, memory=memory)
    model = recipe.build(profile)
    arguments = [
        _X if argument.name == "x" else np.zeros(argument.spec.shape, argument.spec.dtype.numpy)
        for argument in model.arguments()
    ]
    return {name: tensor.numpy() for name, tensor in model(EagerExecutionContext(), *arguments).items()}


def _recipe(quiet: bool = False) -> ModelFlow:
    flow = ModelFlow("m").input("x", ("B", "T", 6)).stage("inputs", lambda build: Projected(quiet))
    return flow.stage("rule", lambda build: Rule())


def test_one_stage_stores_the_inputs_and_another_one_runs_the_rule() -> None:
    ops: Any = EagerExecutionContext().ops
    q, k, v = np.split(_X.reshape(1, 3, 3, 2), 3, 2)
    g, beta = -_X[:, :, 0:1], 1 / (1 + np.exp(-_X[:, :, 1:2]))
    o, state = ops.gated_delta_rule(q, k, v, g, beta, np.zeros((1, 1, 2, 2), np.float32))
    results = _results(_recipe())
    np.testing.assert_allclose(results["output"], o.numpy().reshape(1, 3, 2), rtol=1e-5)
    np.testing.assert_allclose(results["rule.delta_state"], state.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(_results(_recipe(), "none")["output"], results["output"], rtol=1e-6)


def test_with_a_zero_beta_the_state_stays() -> None:
    results = _results(_recipe(quiet=True))
    np.testing.assert_array_equal(results["rule.delta_state"], np.zeros((1, 1, 2, 2), np.float32))
    np.testing.assert_array_equal(results["output"], np.zeros((1, 3, 2), np.float32))


def test_inputs_belong_to_the_recipe_and_the_layer_that_stored_them() -> None:
    inner = ModelFlow("inner").stage("inputs", lambda build: Projected())
    outside = ModelFlow("m").input("x", ("B", "T", 6)).include("part", inner).stage("rule", lambda build: Rule())
    with pytest.raises(OpError, match=r"run_delta at rule: no stage has stored q, k and v: call flow.store_delta_in"):
        outside.build(CompileProfile(name="step", sequence=3)).trace()


@pytest.mark.parametrize(
    "changed",
    [
        {"k": (1, 3, 1, 3)},
        {"q": (1, 3, 3, 2), "k": (1, 3, 2, 2), "v": (1, 3, 2, 2)},
        {"v": (1, 2, 1, 2)},
        {"g": (1, 3)},
        {"beta": (1, 3, 1, 2)},
        {"q": (3, 1, 2)},
        {"k": (1, 3, 0, 2), "v": (1, 3, 0, 2)},
        {"q": None},
        {"beta": 1.0},
    ],
)
def test_stored_inputs_are_held_to_their_shapes(changed: dict[str, Any]) -> None:
    shapes = {"q": (1, 3, 1, 2), "k": (1, 3, 1, 2), "v": (1, 3, 1, 2), "g": (1, 3, 1), "beta": (1, 3, 1), **changed}

    def store(flow: FlowContext, x: FlowValue) -> FlowValue:
        made = {
            name: flow.wrap(flow.ctx.ops.zeros(shape, "f32")) if isinstance(shape, tuple) else shape
            for name, shape in shapes.items()
        }
        flow.store_delta_inputs(**made)
        return x

    with pytest.raises(OpError, match=r"delta input|store_delta_inputs at"):
        ModelFlow("m").input("x", (2,)).custom("store", store).build(
            CompileProfile.preset("encoder", sequence=1)
        ).trace()


class _Recording(EagerExecutionContext):
    @property
    def isRecording(self) -> bool:
        return True


def test_values_are_wrapped_and_shapes_read() -> None:
    seen: list[Any] = []

    def wraps(flow: FlowContext, x: FlowValue) -> FlowValue:
        assert flow.wrap(x.tensor) == FlowValue.of(x.tensor) or flow.wrap(x.tensor).tensor is x.tensor
        assert flow.wrap(x, x.spec).tensor is x.tensor
        seen.append(flow.node_shape(x))
        for wrong in (None, "x", 3.0):
            with pytest.raises(OpError, match="expected a tensor"):
                flow.wrap(wrong)
            with pytest.raises(OpError, match="expected a tensor"):
                flow.node_shape(wrong)
        with pytest.raises(OpError, match="declared as"):
            flow.wrap(x, TensorSpec((7,), "f32"))
        if flow.ctx.isRecording:
            with pytest.raises(TraceEscapeError):
                flow.wrap(np.ones(2, np.float32))
        else:
            assert isinstance(flow.wrap(np.ones(2, np.float32)).tensor, Tensor)
        return x

    model = ModelFlow("m").input("x", (2,)).custom("wraps", wraps).build(CompileProfile.preset("encoder", sequence=1))
    model(EagerExecutionContext(), np.ones(2, np.float32))
    model(_Recording(), EagerExecutionContext().constant(np.ones(2, np.float32)))
    assert set(seen) == {(2,)}
