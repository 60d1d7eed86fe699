"""Graphs as text: deterministic, for people and for golden tests."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compile_dag._node import Node

if TYPE_CHECKING:
    from compile_dag._graph import ComputeGraph


def graph_text(graph: "ComputeGraph") -> str:
    """The graph, one node a line; a comment says the module path where it changes.

    Inputs are named as they are, results are numbered in order.
    """
    return "\n".join(_lines(graph, {}, "")) + "\n"


def _lines(graph: "ComputeGraph", names: dict[int, str], indent: str) -> Iterator[str]:
    names = dict(names) | {id(value): f"%{name}" for name, value in graph.inputs.items()}
    inputs = ", ".join(f"%{name}: {value.spec!r}" for name, value in graph.inputs.items())
    yield f"{indent}graph {graph.name}({inputs}) {{"
    path = ""
    for node in graph.nodes:
        if node.path != path:
            path = node.path
            yield f"{indent}  # {path}"
        yield from _node_lines(node, names, indent + "  ")
    outputs = ", ".join(f"{name}={names[id(value)]}" for name, value in graph.outputs.items())
    yield f"{indent}  return {outputs}"
    yield f"{indent}}}"


def _node_lines(node: Node, names: dict[int, str], indent: str) -> Iterator[str]:
    for value in node.results:
        names[id(value)] = f"%{len(names)}"
    results = ", ".join(f"{names[id(value)]}: {value.spec!r}" for value in node.results)
    regions: list[Any] = []
    operands = [names[id(value)] for value in node.inputs]
    for name, attribute in zip(node.op.attributes, node.attributes, strict=True):
        if hasattr(attribute, "nodes"):
            regions.append(attribute)
        else:
            operands.append(f"{name}={attribute!r}")
    yield f"{indent}{results} = {node.op.name}({', '.join(operands)})"
    for region in regions:
        yield from _lines(region, names, indent + "  ")
