"""The work of every stage is linear in the nodes: ten times as many take about ten times as long.

Calls of functions are counted, which is exact, and processor time is measured, which also sees the scan of a list
or the copy of a table inside one call. Of quadratic work the ratio would be 100.
"""

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from compile_dag import ComputeGraph, GraphExecutionContext, Tape, Value, evaluate
from lang_core import EagerExecutionContext, Tensor, TensorSpec

FEW, MANY = 20_000, 200_000
X = TensorSpec((2,), "f32")


def recorded(count: int) -> Tape:
    """A chain of ``count`` nodes in which far values are used too, in blocks of 100 nodes."""
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        first = x = ctx.placeholder("x", X)
        for start in range(0, count, 100):
            with ctx.block(f"block{start}"):
                for _ in range(50):
                    x = ctx.ops.add(ctx.ops.negate(x), first)
    return tape


def graph_of(tape: Tape) -> ComputeGraph:
    return ComputeGraph("g", tape.inputs, tuple(tape.nodes), {"y": tape.nodes[-1].results[0]})


def calls_of(stage: Callable[[], object]) -> int:
    """How many functions, of Python and of C, a stage calls."""
    count = 0

    def hook(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(hook)
    try:
        stage()
    finally:
        sys.setprofile(None)
    return count


def seconds_of(stage: Callable[[], object]) -> float:
    """The processor time of a stage, the better of two."""
    found = []
    for _ in range(2):
        gc.collect()
        gc.disable()
        before = time.process_time()
        stage()
        found.append(time.process_time() - before)
        gc.enable()
    return min(found)


@pytest.fixture(scope="module")
def graphs() -> dict[int, ComputeGraph]:
    return {count: graph_of(recorded(count)) for count in (FEW, MANY)}


STAGES: dict[str, Callable[[ComputeGraph], object]] = {
    "build": lambda graph: ComputeGraph("g", graph.inputs, graph.nodes, graph.outputs),
    "verify": lambda graph: graph.verify(),
    "print": str,
    "parameters": lambda graph: graph.parameters(),
}


def assert_linear(few: Callable[[], object], many: Callable[[], object], ratio: float = 10.0) -> None:
    assert calls_of(many) <= 1.01 * ratio * calls_of(few) + 1000
    assert seconds_of(many) <= 3 * ratio * seconds_of(few) + 0.05


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
    assert_linear(lambda: str(branches(1_000)), lambda: str(branches(10_000)))


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
