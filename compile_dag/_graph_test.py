import pytest

from compile_dag import ComputeGraph, GraphExecutionContext, Value, evaluate, record
from lang_core import EagerExecutionContext, ExecutionContext, GraphError, Module, Parameter, Tensor, TensorSpec

X, Y = TensorSpec((2, 3), "f32"), TensorSpec((3,), "f32")


def several(ctx: ExecutionContext, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """An output that feeds a node, one value twice, and an input, in an order of their own."""
    total = ctx.ops.add(x, y)
    return {"last": ctx.ops.negate(total), "total": total, "again": total, "unchanged": y}


def test_inputs_and_outputs_are_named_and_in_order() -> None:
    graph = record(several, X, Y)
    assert list(graph.inputs) == ["x", "y"]
    assert list(graph.outputs) == ["last", "total", "again", "unchanged"]
    assert graph.result_specs == (X, X, X, Y)
    assert graph.outputs["total"] is graph.outputs["again"] is graph.nodes[0].results[0]
    assert graph.outputs["unchanged"] is graph.inputs["y"]
    assert graph.nodes[1].inputs == (graph.output("total"),)
    assert graph.captures == ()
    assert repr(graph) == "<graph 'several': 2 inputs, 2 nodes, 4 outputs>"


def test_outputs_that_are_shared_or_inputs_can_be_evaluated() -> None:
    ctx = EagerExecutionContext()
    results = evaluate(
        record(several, X, Y), ctx, {"y": ctx.ops.iota((3,), 0, "f32"), "x": ctx.ops.ones((2, 3), "f32")}
    )
    assert list(results) == ["last", "total", "again", "unchanged"]
    assert results["last"].numpy().tolist() == [[-1.0, -2.0, -3.0]] * 2
    assert results["again"] is results["total"]
    assert results["unchanged"].numpy().tolist() == [0.0, 1.0, 2.0]


def test_an_unknown_output_is_refused_with_near_names() -> None:
    graph = record(several, X, Y)
    message = (
        r"graph 'several' has no output 'totl'; its outputs: last, total, again, unchanged; did you mean 'total'\?"
    )
    with pytest.raises(GraphError, match=message):
        graph.output("totl")
    with pytest.raises(GraphError, match="graph 'g' has no output 'x'; its outputs: none"):
        ComputeGraph("g", {}, (), {}).output("x")


def test_inputs_nobody_uses_stay() -> None:
    assert list(record(lambda ctx, x, y: ctx.ops.exp(x), X, Y).inputs) == ["x", "y"]


def test_parameters_are_listed_once_in_the_order_of_first_use() -> None:
    class Model(Module):
        def __init__(self) -> None:
            self.a, self.b = Parameter((3,), "f32"), Parameter((2, 1), "bf16")

        def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
            for parameter in (self.b, self.a, self.b):
                x = ctx.ops.add(x, ctx.ops.cast(ctx.parameter(parameter), "f32"))
            return x

    graph = record(Model(), X, input_names=["x"])
    assert [(path, v.spec) for path, v in graph.parameters().items()] == [
        ("b", TensorSpec((2, 1), "bf16")),
        ("a", TensorSpec((3,), "f32")),
    ]
    assert sum(node.op.name == "parameter" for node in graph.nodes) == 3


def test_captures_are_what_is_used_but_not_made_in_the_order_of_first_use() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        x, y = ctx.placeholder("x", X), ctx.placeholder("y", Y)
        with ctx.recording() as inner:
            made = ctx.ops.exp(y)
            total = ctx.ops.add(made, x)
    values = [v for v in (x, y, total) if isinstance(v, Value)]
    region = inner.to_region({"total": values[2], "x": values[0]}, "region")
    assert region.captures == (y, x)
    assert tape.nodes == []


def test_a_graph_can_be_made_twice_with_other_outputs() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        y = ctx.ops.exp(ctx.placeholder("x", X))
        z = ctx.ops.sin(y)
    assert isinstance(y, Value)
    assert isinstance(z, Value)
    first, second = tape.to_compute_graph({"y": y}, "first"), tape.to_compute_graph({"z": z}, "second")
    assert (first.nodes, first.inputs) == (second.nodes, second.inputs)
    assert (first.name, second.name, list(first.outputs), list(second.outputs)) == ("first", "second", ["y"], ["z"])


def test_a_node_tells_its_attributes_by_name() -> None:
    (node,) = record(lambda ctx, x: ctx.ops.sum(x, 1, keepdims=True), X).nodes
    assert (node.attribute("axes"), node.attribute("keepdims")) == ((1,), True)


def test_an_empty_graph() -> None:
    graph = record(lambda ctx: {})
    assert (graph.inputs, graph.nodes, graph.outputs) == ({}, (), {})
    assert evaluate(graph, EagerExecutionContext(), {}) == {}
