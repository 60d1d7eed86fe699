from collections.abc import Callable

import pytest

from compile_dag import ComputeGraph, GraphExecutionContext, Value, evaluate, verify
from compile_dag.testing import FEW, MANY, X, assert_linear, graph_of, recorded
from lang_core import EagerExecutionContext, Tensor, TensorSpec


@pytest.fixture(scope="module")
def graphs() -> dict[int, ComputeGraph]:
    return {count: graph_of(recorded(count)) for count in (FEW, MANY)}


STAGES: dict[str, Callable[[ComputeGraph], object]] = {
    "build": lambda graph: ComputeGraph("g", graph.inputs, graph.nodes, graph.outputs),
    "verify": verify,
    "print": str,
    "parameters": lambda graph: graph.parameters(),
}


@pytest.mark.parametrize("stage", STAGES)
def test_stages_of_a_graph_are_linear(stage: str, graphs: dict[int, ComputeGraph]) -> None:
    run = STAGES[stage]
    assert_linear(lambda: run(graphs[FEW]), lambda: run(graphs[MANY]))


def test_recording_is_linear() -> None:
    assert_linear(lambda: recorded(FEW), lambda: recorded(MANY))


def test_evaluation_is_linear() -> None:
    few, many = (graph_of(recorded(count)) for count in (2_000, 20_000))
    ctx = EagerExecutionContext()
    inputs: dict[str, Tensor] = {"x": ctx.ops.ones((2,), "f32")}
    assert_linear(lambda: evaluate(few, ctx, inputs), lambda: evaluate(many, ctx, inputs))


def branches(count: int) -> ComputeGraph:
    """``count`` branches, each of which captures the one before and the input."""
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        pred, x = ctx.placeholder("pred", TensorSpec((), "bool")), ctx.placeholder("x", X)
        last = x
        for _ in range(count):
            last = branch(ctx, pred, last, x)
    assert isinstance(last, Value)
    return tape.to_compute_graph({"y": last})


def branch(ctx: GraphExecutionContext, pred: Tensor, last: Tensor, x: Tensor) -> Tensor:
    return ctx.ops.cond(pred, lambda: (ctx.ops.negate(last),), lambda: (x,))[0]


def test_many_regions_are_linear() -> None:
    assert_linear(lambda: str(branches(500)), lambda: str(branches(5_000)))


def test_deep_recordings_are_linear_in_their_ops() -> None:
    """A tape around that asked for the ops gets each once, however many recordings come and go inside."""

    def many(count: int) -> None:
        ctx = GraphExecutionContext()
        with ctx.recording(include_nested=True) as tape:
            x = ctx.placeholder("x", X)
            for _ in range(count):
                with ctx.recording():
                    x = ctx.ops.negate(x)
        assert len(tape.nodes) == count

    assert_linear(lambda: many(2_000), lambda: many(20_000))
