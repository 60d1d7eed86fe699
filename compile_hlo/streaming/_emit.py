"""Pass 2 of streaming: each stretch is pruned, merged and written when it ends, and forgotten."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from compile_dag import Node, TagInfo, Value, has_tags, regions_of, tags_of
from compile_hlo.emit import FunctionWriter, ModuleWriter
from compile_hlo.passes import Subexpressions, needed_nodes
from compile_hlo.streaming._plan import Plan, fingerprint
from compile_hlo.streaming._stretches import StretchSink
from lang_core import Argument


class _LiveResult(NamedTuple):
    """Result that a later stretch needs.

    Attributes:
        value: the value as recorded.
        first: equal value that was computed earlier and stands for it; itself where there is none.
    """

    value: Value
    first: Value


class EmittingSink(StretchSink):
    """Writes a function as it is recorded.

    Attributes:
        emitted: number of nodes that were written.
        pruned: number of nodes that nothing needs.
        tags: tags that were written, in order.
    """

    def __init__(self, plan: Plan, writer: ModuleWriter, arguments: Sequence[Argument]) -> None:
        super().__init__()
        self._plan = plan
        self._writer = writer
        self._arguments = arguments
        self._subexpressions = Subexpressions()
        self._function: FunctionWriter | None = None
        self._live: dict[int, _LiveResult] = {}  # by the value's number
        self._stands_for: dict[int, int] = {}  # by the first value's number: for how many live results
        self.emitted = 0
        self.pruned = 0
        self.tags: list[TagInfo] = []

    def begin(self, name: str, inputs: Mapping[str, Value]) -> None:
        """Writes the function's head."""
        plan = self._plan
        self._function = self._writer.begin(name, inputs, self._arguments, plan.results, plan.directions)

    def _recorded(self, node: Node) -> None:
        """Does nothing: what is needed of a stretch is known, and written when it ends."""

    def stretch(self, nodes: list[Node]) -> None:
        """Writes what is needed of the nodes."""
        plan = self._plan.stretch(self.index, fingerprint(nodes))
        results = [value for node in nodes for value in node.results]
        live = {value.number for value in results if plan.needs(value)}
        needed = needed_nodes(nodes, set(live))
        self.pruned += len(nodes) - len(needed)
        merged = self._subexpressions.merged(needed)
        self.emitted += len(merged)
        self.tags += tags_of(filter(has_tags, merged))
        assert self._function is not None
        standing = {self._subexpressions.first(value).number for value in results if value.number in live}
        used_later = [value for node in merged for value in node.results if value.number in standing]
        self._function.stretch(merged, used_later)
        self._keep(live, results, plan.last_uses)
        self._function.forget(_inside(nodes))

    def _keep(self, live: set[int], results: list[Value], last_uses: tuple[int, ...]) -> None:
        """Remembers the live results, each with the value that stands for it, and forgets all others."""
        assert self._function is not None
        for value in results:
            if value.number in live:
                first = self._subexpressions.first(value)
                self._live[value.number] = _LiveResult(value, first)
                self._stands_for[first.number] = self._stands_for.get(first.number, 0) + 1
        gone = [value for value in results if value.number not in live and value.number not in self._stands_for]
        for number in last_uses:
            value, first = self._live.pop(number)
            self._stands_for[first.number] -= 1
            if not self._stands_for[first.number]:
                del self._stands_for[first.number]
                gone.append(first)
            if value is not first:
                gone.append(value)
        self._function.forget(gone)
        self._subexpressions.forget(gone)

    def end(self, outputs: Mapping[str, Value]) -> FunctionWriter:
        """Writes the function's end.

        Returns:
            What was written.

        Raises:
            GraphError: this recording was not like the one that was planned.
        """
        self._finish()
        self._plan.check_complete(self.index)
        assert self._function is not None
        self._function.end([self._subexpressions.first(value) for value in outputs.values()])
        return self._function


def _inside(nodes: Iterable[Node]) -> Iterator[Value]:
    """Yields the values of the nodes' regions; none outlives its node."""
    for node in nodes:
        for region in regions_of(node):
            yield from region.inputs.values()
            yield from (value for inner in region.nodes for value in inner.results)
            yield from _inside(region.nodes)
