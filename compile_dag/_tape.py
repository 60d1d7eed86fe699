"""The tape: an ordered record of ops."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from compile_dag._graph import ComputeGraph
from compile_dag._node import Node, Recording, Value
from compile_dag._verify import verify
from lang_core import RecordingError, checked_choices


class Sink(Protocol):
    """Receiver of the events of a recording. A tape is the sink that keeps everything."""

    def node(self, node: Node) -> None:
        """Takes a recorded op."""
        ...

    def open_block(self, name: str) -> None:
        """Takes note that a block was entered."""
        ...

    def close_block(self, name: str) -> None:
        """Takes note that the innermost block was left."""
        ...


class Pauses(Protocol):
    """Keeper of open recordings, which can pause them."""

    def paused(self, tape: "Tape") -> AbstractContextManager[None]:
        """Pauses a recording."""
        ...


@checked_choices
class Tape(Recording):
    """One recording: its inputs and, unless a sink takes them, its nodes.

    Attributes:
        include_nested: True if the ops of recordings inside this one are recorded here too.
        inputs: placeholders by name, in order.
        nodes: recorded nodes, in order; empty if a sink takes the nodes.
        is_region: True if this is a function of a loop or branch, with ops that are part of that one op.
        is_closed: True if the recording has ended.
        recorder: keeper of the recording while it is open.
    """

    def __init__(
        self,
        sink: Sink | None = None,
        include_nested: bool = False,
        is_region: bool = False,
        around: Recording | None = None,
    ) -> None:
        super().__init__(around)
        self.include_nested = include_nested
        self.is_region = is_region
        self.inputs: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.add = self.nodes.append if sink is None else sink.node
        self.sink = sink
        self.recorder: Pauses | None = None

    def paused(self) -> AbstractContextManager[None]:
        """Pauses the recording in a ``with`` statement: ops inside are computed by the context's eager one.

        Their results have data, so they can enter only as an explicit ``ctx.ops.constant``.

        Raises:
            RecordingError: the recording has ended, is another thread's, or has another one open inside.

        >>> from compile_dag import GraphExecutionContext
        >>> ctx = GraphExecutionContext()
        >>> with ctx.recording() as tape:
        ...     x = ctx.ops.placeholder("x", (2,), "f32")
        ...     with tape.paused():
        ...         table = ctx.ops.exp(ctx.ops.constant([0.0, 1.0]))
        ...     y = ctx.ops.add(x, ctx.ops.constant(table))
        >>> [node.op.name for node in tape.nodes]
        ['constant', 'add']
        """
        if self.recorder is None:
            raise RecordingError(
                "paused(): the recording is not open in this thread or task: pause it inside its `with` statement"
            )
        return self.recorder.paused(self)

    def add_input(self, name: str, value: Value) -> None:
        """Adds an input.

        Raises:
            RecordingError: the name is taken.
        """
        if name in self.inputs:
            taken = self.inputs[name].line
            raise RecordingError(
                f"placeholder {name!r} at {value.line}: the recording has an input of that name already, made at "
                f"{taken}: give each its own name"
            )
        self.inputs[name] = value

    @contextmanager
    def watched(self) -> Iterator[list[Node]]:
        """Yields a list to which every node that is recorded inside is added, whoever else takes it."""
        nodes: list[Node] = []
        add = self.add

        def add_to_both(node: Node) -> None:
            add(node)
            nodes.append(node)

        self.add = add_to_both
        try:
            yield nodes
        finally:
            self.add = add

    def to_compute_graph(self, outputs: Mapping[str, Value], name: str = "main") -> ComputeGraph:
        """Returns a verified graph of the recording.

        Args:
            outputs: results by name, in order.
            name: name of the graph, and of the function that it becomes.

        Raises:
            GraphError: an output was not recorded here.
            RecordingError: a sink took the nodes.
        """
        if self.sink is not None:
            raise RecordingError(f"to_compute_graph({name!r}): the recording's sink took the nodes: record without one")
        graph = ComputeGraph(name, self.inputs, tuple(self.nodes), outputs)
        verify(graph)
        return graph

    def to_region(self, outputs: Mapping[str, Value], name: str) -> ComputeGraph:
        """Makes a graph that may use values from around it, for an op with regions; its node verifies it."""
        return ComputeGraph(name, self.inputs, tuple(self.nodes), outputs)
