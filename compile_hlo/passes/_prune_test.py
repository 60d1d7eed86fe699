from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile_dag import ComputeGraph, evaluate, record, verify
from compile_dag.testing import DRAWN, INPUTS, PROGRAMS, Program, eager, input_tensors, same
from compile_hlo.passes import pruned_to_outputs, without_dead_code
from lang_core import ExecutionContext, GraphError, Tensor, TensorSpec

X = TensorSpec((2, 3), "f32")


def chain(ctx: ExecutionContext, x: Tensor, unused: Tensor) -> dict[str, Tensor]:
    first = ctx.ops.exp(x)
    second = ctx.ops.sin(first)
    ctx.ops.cos(second)
    return {"second": second, "first": first, "x": x, "third": ctx.ops.tanh(second)}


def ops_of(graph: ComputeGraph) -> list[str]:
    verify(graph)
    return [node.op.name for node in graph.nodes]


@pytest.mark.parametrize(
    ("outputs", "ops"),
    [
        (["third"], ["exp", "sin", "tanh"]),
        (["first"], ["exp"]),  # it feeds other nodes, which go
        (["second", "first"], ["exp", "sin"]),
        (["first", "second"], ["exp", "sin"]),
        (["x"], []),
        ([], []),
        (["third", "x", "first", "second"], ["exp", "sin", "tanh"]),
    ],
)
def test_what_the_wanted_outputs_do_not_need_goes(outputs: list[str], ops: list[str]) -> None:
    graph = record(chain, X, X)
    pruned = pruned_to_outputs(graph, outputs)
    assert ops_of(pruned) == ops
    assert list(pruned.outputs) == outputs
    assert pruned.name == graph.name
    assert pruned.inputs == graph.inputs
    assert all(pruned.outputs[name] is graph.outputs[name] for name in outputs)


def test_a_pass_leaves_the_graph_it_was_given() -> None:
    graph = record(chain, X, X)
    before = str(graph)
    pruned_to_outputs(graph, ["first"])
    assert str(graph) == before


def test_an_unknown_output() -> None:
    message = r"graph 'chain' has no output 'thrid'; its outputs: second, first, x, third; did you mean 'third'\?"
    with pytest.raises(GraphError, match=message):
        pruned_to_outputs(record(chain, X, X), ["first", "thrid"])


def test_one_result_of_several_keeps_the_node() -> None:
    graph = record(lambda ctx, x: dict(zip(("values", "order"), ctx.ops.sort(x, 1), strict=True)), X)
    assert ops_of(pruned_to_outputs(graph, ["order"])) == ["sort"]


def branching(ctx: ExecutionContext, x: Tensor, pred: Tensor) -> dict[str, Any]:
    captured, dead = ctx.ops.exp(x), ctx.ops.sin(x)
    (live,) = ctx.ops.cond(pred, lambda: (captured,), lambda: (ctx.ops.negate(captured),))
    (lost,) = ctx.ops.cond(pred, lambda: (dead,), lambda: (ctx.ops.add(dead, captured),))
    return {"live": live, "lost": lost}


def test_nodes_with_regions_stay_or_go_with_all_that_they_capture() -> None:
    graph = record(branching, X, TensorSpec((), "bool"))
    assert ops_of(graph) == ["exp", "sin", "cond", "cond"]
    assert ops_of(pruned_to_outputs(graph, ["live"])) == ["exp", "cond"]
    assert ops_of(pruned_to_outputs(graph, ["lost"])) == ["exp", "sin", "cond"]


@DRAWN
@given(program=PROGRAMS, data=st.data())
def test_pruned_programs_compute_the_same(program: Program, data: st.DataObject) -> None:
    graph, ctx = record(program, *INPUTS.values(), input_names=list(INPUTS)), eager()
    names = data.draw(st.lists(st.sampled_from(list(graph.outputs)), unique=True))
    pruned = pruned_to_outputs(graph, names)
    verify(pruned)
    inputs = input_tensors(ctx)
    whole = evaluate(graph, ctx, inputs)
    assert same(evaluate(pruned, ctx, inputs), {name: whole[name] for name in names})
    needed = {value.number for node in pruned.nodes for value in node.inputs} | {
        value.number for value in pruned.outputs.values()
    }
    assert all(any(value.number in needed for value in node.results) for node in pruned.nodes)


@DRAWN
@given(program=PROGRAMS)
def test_dead_code_goes_at_once(program: Program) -> None:
    graph, ctx = record(program, *INPUTS.values(), input_names=list(INPUTS)), eager()
    live = without_dead_code(graph)
    verify(live)
    assert str(without_dead_code(live)) == str(live)
    assert without_dead_code(live).nodes == live.nodes
    inputs = input_tensors(ctx)
    assert same(evaluate(live, ctx, inputs), evaluate(graph, ctx, inputs))
