"""Pass 2 of streaming: each stretch is pruned, merged and written when it ends, and forgotten."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from compile_dag import Node, TagInfo, Value, has_tags, regions_of, tags_of
from compile_hlo.emit import FunctionWriter, ModuleWriter
from compile_hlo.passes import Subexpressions, needed_nodes
from compile_hlo.streaming._plan import INPUT, Plan, fingerprint
from compile_hlo.streaming._stretches import StretchSink
from lang_core import Argument


class EmittingSink(StretchSink):
    """Writes a function as it is recorded. A value's mark is (stretch, serial).

    Attributes:
        emitted: how many nodes were written.
        pruned: how many nodes nothing needs.
        tags: those that were written, in order.
    """

    def __init__(self, plan: Plan, writer: ModuleWriter, arguments: Sequence[Argument]) -> None:
        super().__init__()
        self._plan = plan
        self._writer = writer
        self._arguments = arguments
        self._subexpressions = Subexpressions()
        self._function: FunctionWriter | None = None
        # Results that a later stretch needs; what is known of them by identity holds as long as they live.
        self._alive: dict[tuple[int, int], tuple[Value, Value]] = {}
        self._stands_for: dict[int, int] = {}  # by identity: for how many of them
        self.emitted = 0
        self.pruned = 0
        self.tags: list[TagInfo] = []

    def begin(self, name: str, inputs: Mapping[str, Value]) -> None:
        """Writes the function's head."""
        for serial, value in enumerate(inputs.values()):
            value.mark = INPUT, serial
        plan = self._plan
        self._function = self._writer.begin(name, inputs, self._arguments, plan.results, plan.directions)

    def _number_results(self, node: Node) -> None:
        for value in node.results:
            value.mark = self.number, self.serial
            self.serial += 1

    def stretch(self, nodes: list[Node]) -> None:
        """Writes what is needed of the nodes."""
        plan = self._plan.stretch(self.number, fingerprint(nodes))
        made = [value for node in nodes for value in node.results]
        live = {id(value) for value in made if value.mark[1] in plan.live}
        needed = needed_nodes(nodes, set(live))
        self.pruned += len(nodes) - len(needed)
        merged = self._subexpressions.merged(needed)
        self.emitted += len(merged)
        self.tags += tags_of(filter(has_tags, merged))
        assert self._function is not None
        standing = {id(self._subexpressions.first(value)) for value in made if id(value) in live}
        results = [value for node in merged for value in node.results if id(value) in standing]
        self._function.stretch(merged, results)
        self._keep(live, made, plan.last_uses)
        self._function.forget(_inside(nodes))  # another value may soon have the identity of one of these

    def _keep(self, live: set[int], made: list[Value], last_uses: tuple[tuple[int, int], ...]) -> None:
        """Remembers the live results, each with the value that stands for it, and forgets all others."""
        assert self._function is not None
        for value in made:
            if id(value) in live:
                first = self._subexpressions.first(value)
                self._alive[self.number, value.mark[1]] = value, first
                self._stands_for[id(first)] = self._stands_for.get(id(first), 0) + 1
        gone = [value for value in made if id(value) not in live and id(value) not in self._stands_for]
        for key in last_uses:
            value, first = self._alive.pop(key)
            self._stands_for[id(first)] -= 1
            if not self._stands_for[id(first)]:
                del self._stands_for[id(first)]
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
        self._plan.check_complete(self.number)
        assert self._function is not None
        self._function.end([self._subexpressions.first(value) for value in outputs.values()])
        return self._function


def _inside(nodes: Iterable[Node]) -> Iterator[Value]:
    """The values of the nodes' regions; none outlives its node."""
    for node in nodes:
        for region in regions_of(node):
            yield from region.inputs.values()
            yield from (value for inner in region.nodes for value in inner.results)
            yield from _inside(region.nodes)
