"""Graphs as text: deterministic, for people and for golden tests."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compile_dag._node import Node

if TYPE_CHECKING:
    from compile_dag._graph import ComputeGraph


def graph_text(graph: "ComputeGraph") -> str:
    """The graph, one node a line; a comment says the module path where it changes.

    Inputs are named as they are; results, and what regions take, are numbered in order. Of a region alone, what it
    takes from around it is called ``%outer0``, ``%outer1``, ...
    """
    names = {value.number: f"%{_written(name)}" for name, value in graph.inputs.items()}
    names |= {value.number: f"%outer{i}" for i, value in enumerate(graph.captures)}
    return "\n".join(_lines(graph, names, "")) + "\n"


def _written(name: str) -> str:
    """A name as it is, or quoted where it could be taken for another thing, such as a number."""
    return name if re.fullmatch(r"[A-Za-z_][\w.]*", name, re.ASCII) else f'"{name}"'


def _lines(graph: "ComputeGraph", names: dict[int, str], indent: str) -> Iterator[str]:
    inputs = ", ".join(f"{names[value.number]}: {value.spec!r}" for value in graph.inputs.values())
    yield f"{indent}graph {graph.name}({inputs}) {{"
    path = ""
    for node in graph.nodes:
        if node.path != path:
            path = node.path
            yield f"{indent}  # {path or 'the root'}"
        yield from _node_lines(node, names, indent + "  ")
    outputs = ", ".join(f"{_written(name)}={names[value.number]}" for name, value in graph.outputs.items())
    yield f"{indent}  return {outputs}".rstrip()
    yield f"{indent}}}"


def _node_lines(node: Node, names: dict[int, str], indent: str) -> Iterator[str]:
    for value in node.results:
        names[value.number] = f"%{len(names)}"
    results = ", ".join(f"{names[value.number]}: {value.spec!r}" for value in node.results)
    regions: list[Any] = []
    operands = [names[value.number] for value in node.inputs]
    for name, attribute in zip(node.op.attributes, node.attributes, strict=True):
        if hasattr(attribute, "nodes"):
            regions.append(attribute)
        else:
            operands.append(f"{name}={attribute!r}")
    yield f"{indent}{results} = {node.op.name}({', '.join(operands)})"
    for region in regions:
        for value in region.inputs.values():
            names[value.number] = f"%{len(names)}"
        yield from _lines(region, names, indent + "  ")
