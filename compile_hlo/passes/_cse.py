"""Common subexpressions: what is computed twice from the same values is computed once."""

from collections.abc import Hashable, Mapping

from compile_dag import ComputeGraph, Node, Value, regions_of

# Constants of up to this many bytes are compared by value, larger ones by identity.
_SMALL = 64


def without_common_subexpressions(graph: ComputeGraph) -> ComputeGraph:
    """Replaces a node by an earlier one of the same block with the same op, operands and attributes.

    Nodes of different blocks stay apart, so that a block's text does not depend on what stands around it. A node
    with regions is never replaced, and its regions are not searched. Valid graph in, valid graph out.
    """
    replaced: dict[int, Value] = {}
    seen: dict[Hashable, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = _with_replaced(node, replaced)
        earlier = seen.setdefault(_key(node), node)
        if earlier is node:
            nodes.append(node)
        else:
            replaced.update((id(mine), first) for mine, first in zip(node.results, earlier.results, strict=True))
    outputs = {name: replaced.get(id(value), value) for name, value in graph.outputs.items()}
    return ComputeGraph(graph.name, graph.inputs, tuple(nodes), outputs)


def _key(node: Node) -> Hashable:
    if node.op.name == "constant":
        literal = node.attributes[0]
        value = literal.array.tobytes() if literal.array.nbytes <= _SMALL else id(literal)
        return node.block, "constant", literal.spec, value
    if any(True for _ in regions_of(node)):
        return id(node)
    return node.block, node.op.name, tuple(map(id, node.inputs)), node.attributes


def _with_replaced(node: Node, replaced: Mapping[int, Value]) -> Node:
    """The node with its operands, and what its regions capture, replaced."""
    if not any(id(value) in replaced for value in node.inputs):
        return node
    attributes = tuple(
        _region_with_replaced(attribute, replaced) if isinstance(attribute, ComputeGraph) else attribute
        for attribute in node.attributes
    )
    inputs = [replaced.get(id(value), value) for value in node.inputs]
    return Node(node.op, tuple(inputs), attributes, node.results, node.block)


def _region_with_replaced(region: ComputeGraph, replaced: Mapping[int, Value]) -> ComputeGraph:
    nodes = tuple(_with_replaced(node, replaced) for node in region.nodes)
    outputs = {name: replaced.get(id(value), value) for name, value in region.outputs.items()}
    return ComputeGraph(region.name, region.inputs, nodes, outputs)
