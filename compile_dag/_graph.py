"""The graph: a recording with named outputs, as passes and emission see it."""

from collections.abc import Iterator, Mapping
from typing import Final

from compile_dag._node import Node, Value
from compile_dag._print import graph_text
from compile_dag._verify import captured_values, verify_graph
from lang_core import GraphError, TensorSpec, near_names


class ComputeGraph:
    """A function as a list of nodes, each after the nodes whose results it uses. It is not changed: passes make anew.

    Attributes:
        name: of the function.
        inputs: the arguments by name, in order.
        nodes: in an order in which they can run.
        outputs: the results by name, in order. A value may also feed nodes, or be an output twice.
        captures: values of an enclosing recording that the nodes use, in the order of first use.
    """

    def __init__(
        self, name: str, inputs: Mapping[str, Value], nodes: tuple[Node, ...], outputs: Mapping[str, Value]
    ) -> None:
        self.name: Final = name
        self.inputs: Final = dict(inputs)
        self.nodes: Final = nodes
        self.outputs: Final = dict(outputs)
        self.captures: Final = captured_values(self.inputs.values(), nodes, self.outputs.values())

    @property
    def result_specs(self) -> tuple[TensorSpec, ...]:
        """The specs of the outputs."""
        return tuple(value.spec for value in self.outputs.values())

    def output(self, name: str) -> Value:
        """The output of this name.

        Raises:
            GraphError: there is none; the message lists near names.
        """
        if name not in self.outputs:
            known = ", ".join(self.outputs) or "none"
            raise GraphError(
                f"graph {self.name!r} has no output {name!r}; its outputs: {known}{near_names(name, self.outputs)}"
            )
        return self.outputs[name]

    def parameters(self) -> dict[str, Value]:
        """The weights that the nodes read, by path, in the order of first use; those of regions too."""
        found: dict[str, Value] = {}
        for node in self.nodes:
            if node.op.name == "parameter":
                found.setdefault(node.attributes[0], node.results[0])
            for region in regions_of(node):
                for path, value in region.parameters().items():
                    found.setdefault(path, value)
        return found

    def verify(self) -> None:
        """Checks the graph (see compile_dag/_verify.py). Raises GraphError or OpError."""
        verify_graph(self)

    def __str__(self) -> str:
        return graph_text(self)

    def __repr__(self) -> str:
        return f"<graph {self.name!r}: {len(self.inputs)} inputs, {len(self.nodes)} nodes, {len(self.outputs)} outputs>"


def regions_of(node: Node) -> Iterator[ComputeGraph]:
    """The graphs among a node's attributes."""
    for attribute in node.attributes:
        if isinstance(attribute, ComputeGraph):
            yield attribute
