"""Calls of composites: noted on nodes, and nothing else depends on them."""

from collections.abc import Callable

import numpy as np
import pytest

from compile_dag import Call, GraphExecutionContext, Node, record
from lang_core import (
    CheckpointError,
    EagerExecutionContext,
    ExecutionContext,
    Parameter,
    RecordingError,
    Tensor,
    TensorSpec,
)

SPEC = TensorSpec((2, 3), "f32")


def names(call: Call | None) -> list[str]:
    names_inside_out = []
    while call is not None:
        names_inside_out.append(call.name)
        call = call.outer
    return names_inside_out


def twice(ctx: ExecutionContext, x: Tensor, factor: float) -> Tensor:
    return ctx.composite("twice", lambda x, factor: ctx.ops.mul(ctx.ops.softmax(x), factor), (x,), (factor,))


def test_an_eager_context_runs_the_body() -> None:
    ctx = EagerExecutionContext()
    assert twice(ctx, ctx.constant(np.ones((2, 4), np.float32)), 2.0).numpy().tolist() == [[0.5] * 4] * 2


def test_nodes_know_their_calls_and_calls_what_went_in_and_came_out() -> None:
    graph = record(lambda ctx, x: ctx.ops.exp(twice(ctx, x, 2.0)), SPEC, input_names=["x"])
    exp, mul = graph.nodes[-1], graph.nodes[-2]
    assert exp.call is None
    assert names(mul.call) == ["twice"]
    assert names(graph.nodes[0].call) == ["softmax", "twice"]
    assert mul.call is not None
    assert mul.call.inputs == (graph.inputs["x"],)
    assert mul.call.attributes == (2.0,)
    assert mul.call.results == mul.results


def test_a_substitute_is_recorded_as_the_call_that_it_stands_for() -> None:
    def fn(ctx: ExecutionContext, x: Tensor) -> Tensor:
        def thrice(body: Callable[..., Tensor]) -> Callable[..., Tensor]:
            return lambda x, factor: ctx.ops.mul(body(x, factor), 3.0)

        with ctx.substituting({"twice": thrice}):
            return twice(ctx, x, 2.0)

    graph = record(fn, SPEC, input_names=["x"])
    call = graph.nodes[-1].call
    assert call is not None
    assert (call.name, call.inputs, call.attributes) == ("twice", (graph.inputs["x"],), (2.0,))
    assert call.results == (graph.outputs["result"],)
    assert [node.op.name for node in graph.nodes][-4:] == ["constant", "mul", "constant", "mul"]


def test_composites_with_several_results() -> None:
    graph = record(
        lambda ctx, x: ctx.composite("both", lambda x: (ctx.ops.exp(x), ctx.ops.sin(x)), (x,)), SPEC, input_names=["x"]
    )
    assert graph.nodes[0].call is graph.nodes[1].call
    assert graph.nodes[0].call is not None
    assert graph.nodes[0].call.results == tuple(graph.outputs.values())


def test_the_text_of_a_graph_does_not_show_composites() -> None:
    def plain(ctx: ExecutionContext, x: Tensor) -> Tensor:
        return ctx.ops.mul(ctx.ops.softmax(x), 2.0)

    graph = record(plain, SPEC, name="f")
    assert str(record(lambda ctx, x: twice(ctx, x, 2.0), SPEC, name="f", input_names=["x"])) == str(graph)


def test_a_body_that_fails_ends_its_call() -> None:
    def failing(x: Tensor) -> Tensor:
        raise ZeroDivisionError

    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        x = ctx.ops.placeholder("x", (2,), "f32")
        with pytest.raises(ZeroDivisionError):
            ctx.composite("failing", failing, (x,))
        ctx.ops.exp(x)
    assert tape.nodes[0].call is None


def test_a_watch_sees_what_is_recorded_while_it_lasts_and_takes_nothing_away() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        x = ctx.ops.placeholder("x", (2,), "f32")
        ctx.ops.exp(x)
        with ctx.watched() as seen:
            ctx.ops.sin(x)
            with ctx.watched() as inner:
                ctx.ops.cos(x)
        ctx.ops.tanh(x)
    ops = [[node.op.name for node in nodes] for nodes in (tape.nodes, seen, inner)]
    assert ops == [["exp", "sin", "cos", "tanh"], ["sin", "cos"], ["cos"]]


def test_a_watch_needs_a_recording() -> None:
    with pytest.raises(RecordingError, match=r"watched\(\): no recording is open"), GraphExecutionContext().watched():
        pass


def test_parameters_are_given_by_path_while_it_lasts() -> None:
    weight, other = Parameter((2,), "f32"), Parameter((2,), "f32")
    weight._name, other._name = "weight", "other"

    def fn(ctx: ExecutionContext, x: Tensor) -> Tensor:
        with ctx.parameters_from({"weight": x}):
            product = ctx.ops.mul(ctx.parameter(weight), ctx.parameter(other))
        return ctx.ops.add(product, ctx.parameter(weight))

    graph = record(fn, TensorSpec((2,), "f32"), input_names=["x"])
    assert [node.op.name for node in graph.nodes] == ["parameter", "mul", "parameter", "add"]
    assert list(graph.parameters()) == ["other", "weight"]
    ctx = EagerExecutionContext()
    with ctx.parameters_from({"weight": ctx.ops.ones((2,), "f32")}):
        assert ctx.parameter(weight).numpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("ctx", [EagerExecutionContext(), GraphExecutionContext()])
def test_a_given_parameter_has_the_models_shape(ctx: ExecutionContext) -> None:
    weight = Parameter((2,), "f32")
    weight._name = "weight"
    given = EagerExecutionContext().ops.ones((3,), "f32")
    message = r"parameter 'weight': the model wants f32\[2\], parameters_from was given f32\[3\]"
    with ctx.parameters_from({"weight": given}), pytest.raises(CheckpointError, match=message):
        ctx.parameter(weight)


def test_a_source_line_that_was_said_is_kept() -> None:
    def fn(ctx: ExecutionContext, x: Tensor) -> Tensor:
        ctx.source_line = "there.py:7"
        return ctx.ops.exp(x)

    node: Node = record(fn, SPEC).nodes[0]
    assert node.line == "there.py:7"
