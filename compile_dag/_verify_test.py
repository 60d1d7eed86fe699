import re
from typing import Any

import pytest

from compile_dag import ComputeGraph, GraphExecutionContext, Node, Stretch, Tape, Value, record, verify, verify_stretch
from lang_core import OPS, ExecutionContext, GraphError, OpError, Tensor, TensorSpec

X = TensorSpec((2, 3), "f32")
TAPE = Tape()


def made(spec: TensorSpec = X) -> Value:
    return Value(spec, TAPE, "made by hand", "model", "model.py:7")


def node(op: str, *inputs: Value, results: tuple[Value, ...] | None = None, attributes: tuple[Any, ...] = ()) -> Node:
    return Node(OPS[op], inputs, attributes, (made(),) if results is None else results, Stretch("", 0))


def verified(inputs: dict[str, Value], nodes: list[Node], outputs: dict[str, Value]) -> ComputeGraph:
    graph = ComputeGraph("g", inputs, tuple(nodes), outputs)
    verify(graph)
    return graph


def test_a_graph_made_by_hand() -> None:
    x = made()
    first = node("exp", x)
    second = node("add", first.results[0], x)
    verified({"x": x}, [first, second], {"y": second.results[0], "x": x})


def test_rule_1_a_foreign_operand() -> None:
    x, foreign = made(), made(TensorSpec((3,), "f32"))
    message = re.escape(
        "graph 'g' uses Value(f32[3] of made by hand (at model, model.py:7)), which is none of its inputs and of no "
        "earlier node: record it in this graph, or make it an input"
    )
    with pytest.raises(GraphError, match=message):
        verified({"x": x}, [node("add", x, foreign)], {})


def test_rule_1_a_foreign_output() -> None:
    with pytest.raises(GraphError, match="which is none of its inputs and of no earlier node"):
        verified({"x": made()}, [], {"y": made()})


def test_rule_1_an_operand_of_another_tape_with_the_number_of_an_input() -> None:
    x, foreign = made(), Value(X, Tape(), "made by hand", "model", "model.py:7")
    x.number = foreign.number
    with pytest.raises(GraphError, match="which is none of its inputs and of no earlier node"):
        verified({"x": x}, [node("exp", foreign)], {})


def test_rule_1_an_output_of_another_tape() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        ctx.placeholder("x", X)
    with GraphExecutionContext().recording() as other:
        pass
    with pytest.raises(GraphError, match=r"uses Value\(f32\[2,3\] of placeholder .*_verify_test.py:\d+"):
        other.to_compute_graph({"x": tape.inputs["x"]})


def test_rule_1_a_value_used_before_it_is_made() -> None:
    x = made()
    first = node("exp", x)
    second = node("negate", first.results[0])
    with pytest.raises(GraphError, match="of no earlier node"):
        verified({"x": x}, [second, first], {"y": second.results[0]})


def test_rule_1_a_node_that_uses_its_own_result() -> None:
    y = made()
    with pytest.raises(GraphError, match="of no earlier node"):
        verified({}, [node("exp", y, results=(y,))], {"y": y})


def test_rule_2_a_value_made_by_two_nodes() -> None:
    x, y = made(), made()
    with pytest.raises(GraphError, match=r"<node sin at model, model.py:7> makes a value that is there already"):
        verified({"x": x}, [node("exp", x, results=(y,)), node("sin", x, results=(y,))], {"y": y})


def test_rule_2_an_input_made_by_a_node() -> None:
    x = made()
    with pytest.raises(GraphError, match=r"<node exp .* makes a value that is there already"):
        verified({"x": x}, [node("exp", x, results=(x,))], {"x": x})


def test_rule_2_two_inputs_of_one_value() -> None:
    x = made()
    with pytest.raises(GraphError, match="graph 'g': input 'again' is a value that is there already"):
        verified({"x": x, "again": x}, [], {})


@pytest.mark.parametrize(
    "results", [(), (made(TensorSpec((3, 2), "f32")),), (made(TensorSpec((2, 3), "f16")),), (made(), made())]
)
def test_rule_3_results_of_other_specs(results: tuple[Value, ...]) -> None:
    x = made()
    with pytest.raises(GraphError, match=r"graph 'g': <node exp .*> has results .* its op gives"):
        verified({"x": x}, [node("exp", x, results=results)], {})


def test_rule_3_a_broken_contract() -> None:
    x, y = made(), made(TensorSpec((4,), "f32"))
    with pytest.raises(OpError, match=r"add\(f32\[2,3\], f32\[4\]\): add_c1"):
        verified({"x": x, "y": y}, [node("add", x, y)], {})
    with pytest.raises(OpError, match=r"reshape_c1: 6 elements do not fill shape \(7,\)"):
        verified({"x": x}, [node("reshape", x, attributes=((7,),))], {})


def loop(ctx: ExecutionContext, x: Tensor, y: Tensor) -> Tensor:
    def small(v: Tensor) -> Tensor:
        return ctx.ops.all(ctx.ops.less(v, 9.0))

    return ctx.ops.while_loop(small, lambda v: (ctx.ops.add(v, y),), (x,))[0]


def rebuilt(inputs: tuple[Value, ...] | None = None, cond: Any = None, body: Any = None) -> ComputeGraph:
    """The graph of ``loop``, where functions of the right parts may put in wrong ones."""
    graph = record(loop, X, X)
    (node_of_loop,) = graph.nodes
    attributes = (
        (cond or (lambda g, _: g))(node_of_loop.attributes[0], graph),
        (body or (lambda g, _: g))(node_of_loop.attributes[1], graph),
    )
    operands = node_of_loop.inputs if inputs is None else node_of_loop.inputs[:1]
    wrong = Node(node_of_loop.op, operands, (*attributes, 1), node_of_loop.results, Stretch("", 0))
    return ComputeGraph("g", graph.inputs, (wrong,), graph.outputs)


def test_a_loop_put_together_again() -> None:
    verify(rebuilt())


def test_rule_4_a_capture_that_is_no_operand() -> None:
    with pytest.raises(GraphError, match=r"a region of <node while .*> captures Value\(f32\[2,3\] of placeholder"):
        verify(rebuilt(inputs=()))


def test_rule_4_a_region_takes_what_the_op_gives() -> None:
    def with_inputs(*specs: TensorSpec) -> Any:
        inputs = {f"v{i}": made(spec) for i, spec in enumerate(specs)}
        return lambda region, graph: ComputeGraph("body", inputs, (), {"v": graph.inputs["y"]})

    for specs in ((TensorSpec((3, 2), "f32"),), (X, X), ()):
        with pytest.raises(GraphError, match=r"a region of <node while .*> takes .*, the op gives it"):
            verify(rebuilt(body=with_inputs(*specs)))


def test_rule_4_a_branch_takes_nothing() -> None:
    pred, x, v = made(TensorSpec((), "bool")), made(), made()
    takes, none = ComputeGraph("t", {"v": v}, (), {"v": v}), ComputeGraph("f", {}, (), {"x": x})
    with pytest.raises(GraphError, match=r"takes \(f32\[2,3\],\), the op gives it \(\)"):
        verified({"pred": pred, "x": x}, [node("cond", pred, x, attributes=(takes, none))], {})


def test_rule_4_the_rules_hold_inside_of_regions() -> None:
    def broken(region: ComputeGraph, graph: ComputeGraph) -> ComputeGraph:
        (inside,) = region.nodes
        wrong = Node(inside.op, inside.inputs, (), (made(TensorSpec((9,), "f32")),), Stretch("", 0))
        return ComputeGraph("body", region.inputs, (wrong,), {"v": graph.inputs["y"]})

    def twice(region: ComputeGraph, graph: ComputeGraph) -> ComputeGraph:
        (inside,) = region.nodes
        return ComputeGraph("body", region.inputs, (inside, inside), region.outputs)

    with pytest.raises(GraphError, match=r"graph 'body': <node add .* has results .*its op gives"):
        verify(rebuilt(body=broken))
    with pytest.raises(GraphError, match=r"graph 'body': <node add .* makes a value that is there already"):
        verify(rebuilt(body=twice))


def test_rule_4_a_region_makes_no_value_of_the_graph_around_it() -> None:
    def stolen(region: ComputeGraph, graph: ComputeGraph) -> ComputeGraph:
        return ComputeGraph("body", {"v": graph.inputs["x"]}, (), {"v": graph.inputs["y"]})

    with pytest.raises(GraphError, match="graph 'body': input 'v' is a value that is there already"):
        verify(rebuilt(body=stolen))


def test_rule_4_the_contract_of_a_loop_holds_for_its_regions() -> None:
    def of_another_spec(region: ComputeGraph, graph: ComputeGraph) -> ComputeGraph:
        return ComputeGraph("cond", region.inputs, (), region.inputs)

    with pytest.raises(OpError, match="while_c1: cond returns"):
        verify(rebuilt(cond=of_another_spec))


def test_a_stretch_may_use_what_was_recorded_before_it() -> None:
    x = made()
    first = node("exp", x)
    second = node("add", first.results[0], x)
    verify_stretch("g", [first, second])
    verify_stretch("g", [second])


def test_a_stretch_holds_the_rules_of_graphs() -> None:
    x = made()
    first = node("exp", x)
    second = node("add", first.results[0], x)
    with pytest.raises(GraphError, match="which is none of its inputs and of no earlier node"):
        verify_stretch("g", [node("exp", second.results[0], results=first.results), second])
    with pytest.raises(GraphError, match="makes a value that is there already"):
        verify_stretch("g", [first, second, node("exp", x, results=first.results)])
    with pytest.raises(GraphError, match="has results"):
        verify_stretch("g", [node("exp", x, results=(made(TensorSpec((3,), "f32")),))])
