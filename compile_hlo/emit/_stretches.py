"""A graph cut at its block boundaries."""

import itertools
from collections.abc import Iterator

from compile_dag import ComputeGraph, Node, Value


def stretches(graph: ComputeGraph) -> Iterator[tuple[list[Node], list[Value]]]:
    """The nodes between two boundaries, and those of their results that later nodes or the outputs use."""
    pieces = [list(group) for _, group in itertools.groupby(graph.nodes, key=lambda node: node.stretch)]
    last_use = {id(value): len(pieces) for value in graph.outputs.values()}
    for number, nodes in enumerate(pieces):
        for node in nodes:
            for value in node.inputs:
                last_use[id(value)] = max(number, last_use.get(id(value), 0))
    for number, nodes in enumerate(pieces):
        yield nodes, [value for node in nodes for value in node.results if last_use.get(id(value), 0) > number]
