"""Common subexpressions: equal ops on the same values are computed once."""

import itertools
from collections.abc import Hashable, Iterable, Mapping

from compile_dag import TAG, Call, ComputeGraph, Node, Value, regions_of

# Constants of up to this many bytes are compared by value; larger ones are all different.
_SMALL = 64


def without_common_subexpressions(graph: ComputeGraph) -> ComputeGraph:
    """Replaces a node by an earlier one of the same stretch of a block with the same op, operands and attributes.

    Nodes of different stretches stay apart, so that a block's text does not depend on its surroundings. A node
    with regions, or a tag, is never replaced, and its regions are not searched. Valid graph in, valid graph out.
    """
    subexpressions = Subexpressions()
    nodes: list[Node] = []
    for _, stretch in itertools.groupby(graph.nodes, key=lambda node: node.stretch):
        nodes += subexpressions.merged(stretch)
    outputs = {name: subexpressions.first(value) for name, value in graph.outputs.items()}
    return ComputeGraph(graph.name, graph.inputs, tuple(nodes), outputs)


class Subexpressions:
    """Merges the nodes of one stretch after the other, and remembers which values others stand for."""

    def __init__(self) -> None:
        self._replaced: dict[int, Value] = {}

    def first(self, value: Value) -> Value:
        """Returns the value that stands for this one; itself if none does."""
        return self._replaced.get(value.number, value)

    def replace(self, value: Value, first: Value) -> None:
        """Notes that a value stands for another one."""
        self._replaced[value.number] = first

    def forget(self, values: Iterable[Value]) -> None:
        """Drops the facts of values that are not used any more."""
        for value in values:
            self._replaced.pop(value.number, None)

    def merged(self, stretch: Iterable[Node]) -> list[Node]:
        """Returns the nodes of a stretch that remain."""
        seen: dict[Hashable, Node] = {}
        nodes: list[Node] = []
        calls: dict[Call, Call] = {}
        for node in stretch:
            node = _with_replaced(node, self._replaced, calls)
            key = _key(node)
            earlier = seen.setdefault(key, node)
            if earlier is not node and not _is_spelled_alike(node, earlier):
                earlier = seen.setdefault((key, repr(node.attributes)), node)
            if earlier is node:
                nodes.append(node)
            else:
                pairs = zip(node.results, earlier.results, strict=True)
                self._replaced.update((mine.number, other) for mine, other in pairs)
        return nodes


def _key(node: Node) -> Hashable:
    if node.op.name == "constant":
        literal = node.attributes[0]
        value = literal.array.tobytes() if literal.array.nbytes <= _SMALL else literal
        return "constant", literal.spec, value
    if node.op is TAG or any(True for _ in regions_of(node)):
        return node
    return node.op.name, tuple([value.number for value in node.inputs]), node.attributes


def _is_spelled_alike(one: Node, other: Node) -> bool:
    """Returns False for attributes that compare equal and differ, such as 0.0 and -0.0, or 1 and True."""
    return (
        one.op.name == "constant"  # its key has the bytes
        or one.attributes is other.attributes
        or repr(one.attributes) == repr(other.attributes)
    )


def _with_replaced(node: Node, replaced: Mapping[int, Value], calls: dict[Call, Call]) -> Node:
    """Returns the node with its operands, the captures of its regions, and the inputs of its call replaced."""
    call = node.call and _call_with_replaced(node.call, replaced, calls)
    if call is node.call and not any(value.number in replaced for value in node.inputs):
        return node
    attributes = tuple(
        _region_with_replaced(attribute, replaced) if isinstance(attribute, ComputeGraph) else attribute
        for attribute in node.attributes
    )
    inputs = [replaced.get(value.number, value) for value in node.inputs]
    return Node(node.op, tuple(inputs), attributes, node.results, node.stretch, call)


def _call_with_replaced(call: Call, replaced: Mapping[int, Value], calls: dict[Call, Call]) -> Call:
    """Returns the call with its inputs replaced, the same one for all nodes of a stretch."""
    renewed = calls.get(call)
    if renewed is None:
        renewed, outer = call, call.outer and _call_with_replaced(call.outer, replaced, calls)
        inputs = [replaced.get(given.number, given) if isinstance(given, Value) else given for given in call.inputs]
        if outer is not call.outer or any(mine is not given for mine, given in zip(inputs, call.inputs, strict=True)):
            renewed = Call(call.name, tuple(inputs), call.attributes, outer)
            renewed.results, renewed.is_whole = call.results, call.is_whole
        calls[call] = renewed
    return renewed


def _region_with_replaced(region: ComputeGraph, replaced: Mapping[int, Value]) -> ComputeGraph:
    nodes = tuple(_with_replaced(node, replaced, {}) for node in region.nodes)
    outputs = {name: replaced.get(value.number, value) for name, value in region.outputs.items()}
    return ComputeGraph(region.name, region.inputs, nodes, outputs)
