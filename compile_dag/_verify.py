"""What holds of every graph."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from compile_dag._node import Node, Value
from lang_core import GraphError

if TYPE_CHECKING:
    from compile_dag._graph import ComputeGraph


def captured_values(inputs: Iterable[Value], nodes: tuple[Node, ...], outputs: Iterable[Value]) -> tuple[Value, ...]:
    """The values that are used but neither given nor made here, in the order of first use."""
    known = {value.number: value for value in inputs}
    captured: dict[int, Value] = {}

    def use(value: Value) -> None:
        if known.get(value.number) is not value:  # a value of another recording may have the number of one of these
            captured.setdefault(value.number, value)

    for node in nodes:
        for value in node.inputs:
            use(value)
        known.update((value.number, value) for value in node.results)
    for value in outputs:
        use(value)
    return tuple(captured.values())


def verify_graph(graph: "ComputeGraph") -> None:
    """Checks a graph in O(nodes).

    1. Every operand is an input, or a result of an earlier node; only a region may capture.
    2. No value is made twice, be it as an input or as a result, here or in a region.
    3. Every node meets its op's contract, and its results have the specs that the op's shape rule gives.
    4. A region's captures are operands of its node; a loop's regions take the carried values, a branch's none; and
       regions hold these rules too.

    Raises:
        GraphError: rule 1, 2 or 4 is broken, or a spec differs.
        OpError: a contract is broken.
    """
    if graph.captures:
        value = graph.captures[0]
        raise GraphError(
            f"graph {graph.name!r} uses {value!r}, which is none of its inputs and of no earlier node: record it in "
            f"this graph, or make it an input"
        )
    _verify(graph, set())


def _verify(graph: "ComputeGraph", made: set[int]) -> None:
    for name, value in graph.inputs.items():
        if value.number in made:
            raise GraphError(f"graph {graph.name!r}: input {name!r} is a value that is there already")
        made.add(value.number)
    for node in graph.nodes:
        for value in node.results:
            if value.number in made:
                raise GraphError(f"graph {graph.name!r}: {node!r} makes a value that is there already")
            made.add(value.number)
        _verify_node(graph, node, made)


def _verify_node(graph: "ComputeGraph", node: Node, made: set[int]) -> None:
    operands = tuple(value.spec for value in node.inputs)
    regions = [attribute for attribute in node.attributes if isinstance(attribute, type(graph))]
    infer = node.op.infer_afresh if regions or node.op.name in ("constant", "parameter") else node.op.infer
    expected = infer(operands, node.attributes)
    found = tuple(value.spec for value in node.results)
    if found != expected:
        raise GraphError(f"graph {graph.name!r}: {node!r} has results {found}, its op gives {expected}")
    given = {value.number: value for value in node.inputs}
    takes = operands[: node.attribute("carried")] if node.op.name == "while" else ()
    for region in regions:
        inputs = tuple(value.spec for value in region.inputs.values())
        if inputs != takes:
            raise GraphError(f"graph {graph.name!r}: a region of {node!r} takes {inputs}, the op gives it {takes}")
        for value in region.captures:
            if given.get(value.number) is not value:
                raise GraphError(f"graph {graph.name!r}: a region of {node!r} captures {value!r}, no operand of it")
        _verify(region, made)
