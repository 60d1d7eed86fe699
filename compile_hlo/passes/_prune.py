"""Pruning: what the wanted outputs do not need goes."""

from collections.abc import Sequence

from compile_dag import ComputeGraph, Node


def pruned_to_outputs(graph: ComputeGraph, outputs: Sequence[str]) -> ComputeGraph:
    """Keeps the nodes that the named outputs need.

    Args:
        graph: a valid graph.
        outputs: names of its outputs, in the order that the new graph has.

    Returns:
        A valid graph with the same inputs: a signature does not change because an argument is unused.

    Raises:
        GraphError: the graph has no such output.
    """
    wanted = {name: graph.output(name) for name in outputs}
    live = {id(value) for value in wanted.values()}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(id(value) in live for value in node.results):
            kept.append(node)
            live.update(map(id, node.inputs))
    return ComputeGraph(graph.name, graph.inputs, tuple(reversed(kept)), wanted)


def without_dead_code(graph: ComputeGraph) -> ComputeGraph:
    """Keeps the nodes that the outputs need. Valid graph in, valid graph out."""
    return pruned_to_outputs(graph, tuple(graph.outputs))
