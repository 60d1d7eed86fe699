"""The graph: a recording with named outputs, as passes and emission see it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from compile_dag._node import Node, Value
from lang_core import GraphError, TensorSpec, near_names, nests_regions, some_of


class ComputeGraph:
    """Function as a list of nodes, each after the nodes that it depends on. It is immutable: passes make new ones.

    ``str`` gives its text, one node a line, the same each time. Inputs keep their names; results and the arguments of
    regions are numbered in order. In a region printed alone, captured values are called ``%outer0``, ``%outer1``, ...

    Attributes:
        name: name of the function.
        inputs: arguments by name, in order.
        nodes: nodes in an order in which they can run.
        outputs: results by name, in order. A value may also feed nodes, or be an output twice.
        captures: values of an enclosing recording that the nodes use, in the order of first use.
    """

    def __init__(
        self, name: str, inputs: Mapping[str, Value], nodes: tuple[Node, ...], outputs: Mapping[str, Value]
    ) -> None:
        self.name: Final = name
        self.inputs: Final = dict(inputs)
        self.nodes: Final = nodes
        self.outputs: Final = dict(outputs)
        self.captures: Final = _captured_values(self.inputs.values(), nodes, self.outputs.values())

    @property
    def result_specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the outputs."""
        return tuple(value.spec for value in self.outputs.values())

    def output(self, name: str) -> Value:
        """Returns the output of this name.

        Raises:
            GraphError: there is none; the message lists near names.
        """
        if name not in self.outputs:
            known = some_of(name, self.outputs) or "none"
            raise GraphError(
                f"graph {self.name!r} has no output {name!r}; its outputs: {known}{near_names(name, self.outputs)}"
            )
        return self.outputs[name]

    def parameters(self) -> dict[str, Value]:
        """Returns the weights that the nodes and their regions read, by path, in the order of first use."""
        parameters: dict[str, Value] = {}
        for node in self.nodes:
            if node.op.name == "parameter":
                parameters.setdefault(node.attributes[0], node.results[0])
            for region in regions_of(node):
                for path, value in region.parameters().items():
                    parameters.setdefault(path, value)
        return parameters

    @nests_regions
    def __str__(self) -> str:
        names = {value.number: f"%{_written(name)}" for name, value in self.inputs.items()}
        names |= {value.number: f"%outer{i}" for i, value in enumerate(self.captures)}
        return "\n".join(_lines(self, names, "")) + "\n"

    def __repr__(self) -> str:
        return f"<graph {self.name!r}: {len(self.inputs)} inputs, {len(self.nodes)} nodes, {len(self.outputs)} outputs>"


def regions_of(node: Node) -> Iterator[ComputeGraph]:
    """Yields the graphs among a node's attributes."""
    for attribute in node.attributes:
        if isinstance(attribute, ComputeGraph):
            yield attribute


def _captured_values(inputs: Iterable[Value], nodes: tuple[Node, ...], outputs: Iterable[Value]) -> tuple[Value, ...]:
    """Returns the values that are used but neither given nor made here, in the order of first use."""
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


def _written(name: str) -> str:
    """Returns a name as it is, or quoted if it could be taken for another thing, such as a number."""
    return name if re.fullmatch(r"[A-Za-z_][\w.]*", name, re.ASCII) else f'"{name}"'


def _lines(graph: ComputeGraph, names: dict[int, str], indent: str) -> Iterator[str]:
    """Yields a graph's text; a comment gives the module path where it changes."""
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
    arguments = [names[value.number] for value in node.inputs]
    for name, attribute in zip(node.op.attributes, node.attributes, strict=True):
        if not isinstance(attribute, ComputeGraph):
            arguments.append(f"{name}={attribute!r}")
    yield f"{indent}{results} = {node.op.name}({', '.join(arguments)})"
    for region in regions_of(node):
        for value in region.inputs.values():
            names[value.number] = f"%{len(names)}"
        yield from _lines(region, names, indent + "  ")
