"""The verifier: rules that hold of every graph, and of every stretch of a recording.

1. Every operand is an input, or a result of an earlier node; only a region may capture.
2. Each value is defined once, as an input or as a result, here or in a region. 3. Every node meets its op's contract,
and its results have the specs that the op's shape rule gives.
4. A region's captures are operands of its node; a loop's regions take the carried values, a branch's none; and
   regions hold these rules too.
"""

from collections.abc import Sequence

from compile_dag._graph import ComputeGraph, regions_of
from compile_dag._node import Node, Value
from lang_core import GraphError


def verify(graph: ComputeGraph) -> None:
    """Checks a graph in O(nodes).

    Raises:
        GraphError: rule 1, 2 or 4 is broken, or a spec differs.
        OpError: an op's contract is broken.
    """
    if graph.captures:
        raise _unknown(graph.name, graph.captures[0])
    _verify_graph(graph, set())


def verify_stretch(name: str, nodes: Sequence[Node]) -> None:
    """Checks nodes that were recorded one after the other, given nothing but the nodes.

    Values of smaller numbers than the first result's were recorded before.

    Args:
        name: name of the function, for messages.
        nodes: the nodes, not empty.

    Raises:
        GraphError: rule 1, 2 or 4 is broken, or a spec differs.
        OpError: an op's contract is broken.
    """
    first = nodes[0].results[0].number
    made: set[int] = set()
    for node in nodes:
        for value in node.inputs:
            if value.number >= first and value.number not in made:
                raise _unknown(name, value)
        _verify_node(name, node, made)


def _unknown(name: str, value: Value) -> GraphError:
    return GraphError(
        f"graph {name!r} uses {value!r}, which is none of its inputs and of no earlier node: record it in this graph, "
        f"or make it an input"
    )


def _verify_graph(graph: ComputeGraph, made: set[int]) -> None:
    for name, value in graph.inputs.items():
        if value.number in made:
            raise GraphError(f"graph {graph.name!r}: input {name!r} is a value that is there already")
        made.add(value.number)
    for node in graph.nodes:
        _verify_node(graph.name, node, made)


def _verify_node(name: str, node: Node, made: set[int]) -> None:
    for value in node.results:
        if value.number in made:
            raise GraphError(f"graph {name!r}: {node!r} makes a value that is there already")
        made.add(value.number)
    regions = tuple(regions_of(node))
    infer = node.op.infer_afresh if regions or node.op.name in ("constant", "parameter") else node.op.infer
    expected = infer(tuple([value.spec for value in node.inputs]), node.attributes)
    specs = tuple([value.spec for value in node.results])
    if specs != expected:
        raise GraphError(f"graph {name!r}: {node!r} has results {specs}, its op gives {expected}")
    for region in regions:
        _verify_region(name, node, region)
        _verify_graph(region, made)


def _verify_region(name: str, node: Node, region: ComputeGraph) -> None:
    carried = node.inputs[: node.attribute("carried")] if node.op.name == "while" else ()
    takes = tuple(value.spec for value in carried)
    inputs = tuple(value.spec for value in region.inputs.values())
    if inputs != takes:
        raise GraphError(f"graph {name!r}: a region of {node!r} takes {inputs}, the op gives it {takes}")
    given = {value.number: value for value in node.inputs}
    for value in region.captures:
        if given.get(value.number) is not value:
            raise GraphError(f"graph {name!r}: a region of {node!r} captures {value!r}, no operand of it")
