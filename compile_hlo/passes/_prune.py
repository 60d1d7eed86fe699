"""Pruning: removes the nodes that neither the wanted outputs nor a tag needs."""

from collections.abc import Sequence

from compile_dag import ComputeGraph, Node, has_tags


def pruned_to_outputs(graph: ComputeGraph, outputs: Sequence[str]) -> ComputeGraph:
    """Keeps the nodes that the named outputs and the tags need.

    Args:
        graph: valid graph.
        outputs: names of its outputs, in the order that the new graph has.

    Returns:
        A valid graph with the same inputs: a signature does not change because an argument is unused.

    Raises:
        GraphError: the graph lacks the output.
    """
    wanted = {name: graph.output(name) for name in outputs}
    kept = needed_nodes(graph.nodes, {value.number for value in wanted.values()})
    return ComputeGraph(graph.name, graph.inputs, tuple(kept), wanted)


def without_dead_code(graph: ComputeGraph) -> ComputeGraph:
    """Keeps the nodes that the outputs and the tags need. Valid graph in, valid graph out."""
    return pruned_to_outputs(graph, tuple(graph.outputs))


def needed_nodes(nodes: Sequence[Node], live: set[int]) -> list[Node]:
    """Returns the nodes, in order, that tags and the values of ``live`` (by number) need; adds their operands to it."""
    kept: list[Node] = []
    for node in reversed(nodes):
        for value in node.results:
            if value.number in live:
                break
        else:
            if not has_tags(node):
                continue
        kept.append(node)
        live.update([value.number for value in node.inputs])
    kept.reverse()
    return kept
