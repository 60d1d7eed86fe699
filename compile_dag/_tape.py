"""The tape: what a recording writes down, in order."""

from collections.abc import Mapping
from typing import Protocol

from compile_dag._graph import ComputeGraph
from compile_dag._node import Node, Value
from lang_core import RecordingError, TensorSpec


class Sink(Protocol):
    """Takes the events of a recording as they happen. A tape is the sink that keeps everything."""

    def node(self, node: Node) -> None:
        """An op was recorded."""
        ...

    def open_block(self, name: str) -> None:
        """A block scope was entered."""
        ...

    def close_block(self, name: str) -> None:
        """The innermost block scope was left."""
        ...


class Tape:
    """One recording: its inputs and, unless a sink takes them, its nodes.

    Attributes:
        include_nested: whether the ops of recordings inside this one are recorded here too.
        inputs: placeholders by name, in order.
        nodes: what was recorded, in order; empty if a sink takes the nodes.
        is_open: whether the recording goes on.
    """

    def __init__(self, sink: Sink | None = None, include_nested: bool = False) -> None:
        self.include_nested = include_nested
        self.inputs: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.is_open = True
        self.add = self.nodes.append if sink is None else sink.node
        self.sink = sink
        self._heir: Tape | None = None

    def placeholder(self, name: str, spec: TensorSpec, path: str, line: str) -> Value:
        """Adds an input.

        Raises:
            RecordingError: the name is taken.
        """
        if name in self.inputs:
            raise RecordingError(f"placeholder {name!r} at {line}: the tape has an input of that name already")
        value = self.inputs[name] = Value(spec, self, "placeholder", path, line)
        return value

    def close(self, heir: "Tape | None") -> None:
        """Ends the recording. The values live on in ``heir``, a tape that recorded the same ops."""
        self.is_open = False
        self._heir = heir

    def owner(self) -> "Tape":
        """The open tape in which this tape's values can be used; itself where there is none."""
        tape = self
        while not tape.is_open and tape._heir is not None:
            tape = tape._heir
        return tape

    def to_compute_graph(self, outputs: Mapping[str, Value], name: str = "main") -> ComputeGraph:
        """Makes a verified graph of what was recorded.

        Args:
            outputs: the results, by name, in order.
            name: the name of the graph, which is that of the function it becomes.

        Raises:
            GraphError: an output was not recorded here.
        """
        graph = ComputeGraph(name, self.inputs, tuple(self.nodes), outputs)
        graph.verify()
        return graph

    def to_region(self, outputs: Mapping[str, Value], name: str) -> ComputeGraph:
        """Makes a graph that may use values from around it, for an op with regions; its node verifies it."""
        return ComputeGraph(name, self.inputs, tuple(self.nodes), outputs)
