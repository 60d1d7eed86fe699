"""Graph cut at its block boundaries."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from compile_dag import ComputeGraph, Node, Value


class CutStretch(NamedTuple):
    """Nodes between two block boundaries.

    Attributes:
        nodes: nodes, in order.
        results: those of their results that are used later.
    """

    nodes: list[Node]
    results: list[Value]


def stretches(graph: ComputeGraph) -> Iterator[CutStretch]:
    """Yields stretches in order: their nodes, and those of their results that later nodes or the outputs use."""
    pieces = [list(group) for _, group in itertools.groupby(graph.nodes, key=lambda node: node.stretch)]
    last_use = {value.number: len(pieces) for value in graph.outputs.values()}
    for number, nodes in enumerate(pieces):
        for node in nodes:
            for value in node.inputs:
                last_use[value.number] = max(number, last_use.get(value.number, 0))
    for number, nodes in enumerate(pieces):
        used = [value for node in nodes for value in node.results if last_use.get(value.number, 0) > number]
        yield CutStretch(nodes, used)
