"""Graphs with inner values as further results."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from compile_dag import TAG, ComputeGraph, Node, TagInfo, Value, tag_info


@dataclass(frozen=True, slots=True)
class Shown:
    """Inner value of a graph.

    Attributes:
        info: name and origin.
        value: recorded value.
        iteration: number of shown values of the same name before it.
    """

    info: TagInfo
    value: Value
    iteration: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Name and iteration, which are the same in another graph of the model."""
        return self.info.name, self.iteration


def tagged(graph: ComputeGraph) -> list[Shown]:
    """Returns the tagged values of a graph, in order, without those inside of loops and branches."""
    return _numbered((tag_info(node), node.inputs[0]) for node in graph.nodes if node.op is TAG)


def ops_of(graph: ComputeGraph) -> list[Shown]:
    """Returns the results of all ops of a graph, in order, named by the op below the path of its module."""
    return _numbered(_named(node, value) for node in graph.nodes if node.op is not TAG for value in node.results)


def made_for(graph: ComputeGraph, target: Value, known: Container[Value]) -> list[Shown]:
    """Returns those of ``ops_of`` that the target is made of, itself included, back to the known values."""
    makers = {value: node for node in graph.nodes for value in node.results if node.op is not TAG}
    needed: set[Value] = set()
    done: set[Node] = set()
    waiting = [target]
    while waiting:
        value = waiting.pop()
        maker = makers.get(value)
        if maker is None or (value is not target and value in known):
            continue
        needed.add(value)
        if maker not in done:
            done.add(maker)
            waiting.extend(maker.inputs)
    return [shown for shown in ops_of(graph) if shown.value in needed]


def _named(node: Node, value: Value) -> tuple[TagInfo, Value]:
    """Names a value by its op."""
    result = Value(value.spec, value.recording, TAG.name, value.path, value.line)
    return tag_info(Node(TAG, (value,), (node.op.name,), (result,), node.stretch)), value


def _numbered(pairs: Iterator[tuple[TagInfo, Value]]) -> list[Shown]:
    met: dict[str, int] = {}
    numbered = []
    for info, value in pairs:
        numbered.append(Shown(info, value, met.get(info.name, 0)))
        met[info.name] = met.get(info.name, 0) + 1
    return numbered


def with_results(graph: ComputeGraph, shown: Sequence[Shown]) -> ComputeGraph:
    """Returns the graph without tags, with these values as further results under arbitrary names."""
    more = {f"shown {number}": inner.value for number, inner in enumerate(shown)}
    nodes = tuple(node for node in graph.nodes if node.op is not TAG)
    return ComputeGraph(graph.name, graph.inputs, nodes, {**graph.outputs, **more})
