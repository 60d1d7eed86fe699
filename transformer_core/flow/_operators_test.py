"""Operators on flow values, misspelt arguments of flows, and modules with a path for data below a trace."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext, ExecutionContext, KeywordError, Module, OperatorError, Tensor
from transformer_core import RMSNorm
from transformer_core.flow import Block, CompileProfile, FlowContext, FlowValue, ModelFlow, when

PROFILE = CompileProfile.preset("training", sequence=3)
X = np.arange(18, dtype=np.float32).reshape(1, 3, 6)

USES: dict[str, tuple[Callable[[Any], object], str]] = {
    "mul": (lambda x: 0.5 * x, "mul"),
    "add an array": (lambda x: X + x, "add"),
    "matmul": (lambda x: x @ x, "dot_general"),
    "less": (lambda x: x < 1, "less"),
    "subscript": (lambda x: x[0], "slice"),
    "iterate": (list, "slice"),
    "negate": (operator.neg, "negate"),
    "np.tanh": (np.tanh, "tanh"),
    "bool": (bool, "bool()"),
    "asarray": (np.asarray, "x.tensor"),
}


def _recipe(make: Callable[[Any], Module]) -> ModelFlow:
    return ModelFlow("m").input("x", ("B", "T", 6)).stage("part", make).result("y")


@pytest.mark.parametrize("name", USES)
def test_operators_on_flow_values(name: str) -> None:
    use, op = USES[name]

    class Uses(Block):
        def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
            use(values[0])
            return values[0]

    model = _recipe(lambda build: Uses()).build(PROFILE)
    for run in (model.trace, lambda: model(EagerExecutionContext(), X)):
        with pytest.raises(OperatorError, match=r"flow value \(f32\[1,3,6\]\)") as caught:
            run()
        assert op in str(caught.value)


def test_misspelt_arguments_of_flows() -> None:
    flow = ModelFlow("m").input("x", ("B", "T", 6))
    with pytest.raises(KeywordError, match=r"ModelFlow.final_norm: no argument 'epss'; did you mean 'eps'"):
        flow.final_norm(epss=1e-5)  # pyright: ignore[reportCallIssue]
    with pytest.raises(KeywordError, match=r"ModelFlow.stage: no argument 'streems'; did you mean 'streams'"):
        flow.stage("part", lambda build: RMSNorm(6), streems=("x",))  # pyright: ignore[reportCallIssue]
    with pytest.raises(KeywordError, match=r"when: no argument 'otherwize'; did you mean 'otherwise'"):
        when(lambda build: True, flow, otherwize=flow)  # pyright: ignore[reportCallIssue]
    with pytest.raises(KeywordError, match=r"CompileProfile: no argument 'sequenc'; did you mean 'sequence'"):
        CompileProfile(sequenc=3)  # pyright: ignore[reportCallIssue]
    with pytest.raises(KeywordError, match=r"RMSNorm: no argument 'epz'; did you mean 'eps'"):
        RMSNorm(6, epz=1e-5)  # pyright: ignore[reportCallIssue]

    class Emits(Block):
        def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
            return flow.emit("sum", values[0], axiss=0)

    with pytest.raises(KeywordError, match=r"ctx.ops.sum: no argument 'axiss'; did you mean 'axis'"):
        _recipe(lambda build: Emits()).build(PROFILE).trace()


def test_a_module_with_a_path_for_data_is_traced_and_runs() -> None:
    class Fast(Module):
        def forward(self, ctx: ExecutionContext, x: Tensor) -> Any:
            return ctx.ops.tanh(x) if ctx.isRecording else np.tanh(x.numpy())

    model = _recipe(lambda build: Fast()).build(PROFILE)
    assert {name: repr(spec) for name, spec in model.trace().results.items()} == {"y": "f32[1,3,6]"}
    results = model(EagerExecutionContext(), X)
    assert np.asarray(results["y"]).tobytes() == np.tanh(X).tobytes()
