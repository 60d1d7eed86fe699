"""Overlaps: updates with other operands that are computed from the buffer that they write into.

A program with such an update is correct: the operands have the earlier contents of the buffer. Compilers that update in
place get some of them wrong, and emission then writes the update in a form that they get right.

A *root* is a value with a buffer of its own: an input of the function, or the result of an op that compilers do not
fuse with later ops, such as a product. A value reads the roots that it is computed from in one pass. So an update
overlaps if its target begins in a root that another operand reads. Constants and weights are copied before they are
updated, and their readers may read the copy; they are not updated in place.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from compile_dag import ComputeGraph, Node, Value
from compile_hlo.directions._dataflow import GIVEN, MOVES, is_same

Roots = frozenset[int]

_NOTHING: Final[Roots] = frozenset()
# Roots of all constants, and of all weights, of more than one element: equal ones are one buffer for a compiler. Values
# have smaller numbers.
SHARED: Final = 1 << 40
"""Least number of a root that is no value of the function."""
_GIVEN_ROOTS: Final = {name: frozenset((SHARED + place,)) for place, name in enumerate(sorted(GIVEN))}
_SHARED_ROOTS: Final[Roots] = frozenset().union(*_GIVEN_ROOTS.values())
# The results of these are computed before what uses them.
_APART: Final = frozenset(
    "argmax argmin block_product cached_attention conv dot_general expert_block_product iota "
    "packed_cached_attention packed_expert_linear packed_linear sort".split()
)
# Ops with another result than their operands have elements, so that it is none of their buffers.
_NEW: Final = frozenset("all any cumsum max min prod sum".split())
UPDATES: Final = ("dynamic_update_slice", "put", "scatter")
"""Ops that write into their first operand."""


class Reach(NamedTuple):
    """Roots of a value, by their numbers.

    Attributes:
        begins: roots with buffers that the value may use, or that it is computed from in one pass.
        read: roots that the value is computed from in one pass.
        same: roots that the value may be a part of.
    """

    begins: Roots
    read: Roots
    same: Roots


class Update(NamedTuple):
    """Update in place.

    Attributes:
        number: number of its result.
        target: roots in which its target begins.
        read: roots that its other operands read.
    """

    number: int
    target: Roots
    read: Roots


class StretchOverlaps(NamedTuple):
    """Updates of a stretch, and the roots of its results; roots are values from outside, or made by the stretch.

    Attributes:
        updates: updates, also those inside of loops and branches.
        results: roots of each result by its number.
    """

    updates: tuple[Update, ...]
    results: tuple[tuple[int, Reach], ...]


def stretch_overlaps(nodes: Iterable[Node], results: Iterable[Value]) -> StretchOverlaps:
    """Returns the updates of a stretch.

    Args:
        nodes: nodes of the stretch.
        results: those of their results that are used later.
    """
    walk = _Walk()
    walk.nodes(nodes)
    return StretchOverlaps(tuple(walk.updates), tuple([(value.number, walk.reach(value)) for value in results]))


class FunctionOverlaps:
    """Follows the roots of a function's values, stretch by stretch."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}
        # Roots of the live results of stretches, as bits.
        self._known: dict[int, tuple[int, int, int]] = {}

    def overlapping(self, updates: Iterable[Update]) -> Roots:
        """Returns the numbers of the updates that overlap."""
        return frozenset(
            [
                update.number
                for update in updates
                if not update.target.isdisjoint(update.read)
                or self._roots(update.target, 0) & self._roots(update.read, 1)
            ]
        )

    def add(self, results: Iterable[tuple[int, Reach]]) -> None:
        """Adds the results of a stretch."""
        known = [
            (number, tuple([self._roots(roots, place) for place, roots in enumerate(reach)]))
            for number, reach in results
        ]
        for number, (begins, read, same) in known:
            self._known[number] = begins, read, same

    def forget(self, numbers: Iterable[int]) -> None:
        """Drops the facts of values that are not used any more, given by their numbers."""
        for number in numbers:
            self._known.pop(number, None)

    def _roots(self, numbers: Roots, place: int) -> int:
        bits = 0
        for number in numbers:
            known = self._known.get(number)
            bits |= 1 << self._bits.setdefault(number, len(self._bits)) if known is None else known[place]
        return bits


class _Walk:
    """Follows roots through nodes in order."""

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self._known: dict[int, Reach] = {}
        self._slices: dict[int, Node] = {}

    def reach(self, value: Value) -> Reach:
        """Returns the roots of a value; one from outside is a root."""
        known = self._known.get(value.number)
        if known is not None:
            return known
        roots = _GIVEN_ROOTS.get(value.op_name)
        if roots is None:
            roots = frozenset((value.number,))
        elif value.spec.size <= 1:  # it has no other element to be read after it is overwritten
            roots = _NOTHING
        return Reach(roots, roots, roots)

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Takes nodes."""
        for node in nodes:
            name = node.op.name
            if name in GIVEN:
                continue
            if name == "while":
                self._loop(node)
            elif name == "cond":
                outputs = [self._region(graph) for graph in node.attributes]
                for result, sides in zip(node.results, zip(*outputs, strict=True), strict=True):
                    self._chosen(result, _union([side.same for side in sides]), _union([side.read for side in sides]))
            elif name == "sort" and node.inputs[0].shape[node.attributes[0]] <= 1:  # it is written without a sort
                reach = self.reach(node.inputs[0])
                self._known[node.results[0].number] = reach
                self._chosen(node.results[1], _NOTHING)
            elif name in _APART or not node.inputs:
                for result in node.results:
                    self._chosen(result, _NOTHING)
            elif name in UPDATES:
                self._update(node)
            else:
                self._computed(node)

    def _computed(self, node: Node) -> None:
        inputs, result = [self.reach(value) for value in node.inputs], node.results[0]
        if is_same(node):
            self._known[result.number] = inputs[0]
            return
        read = _union([reach.read for reach in inputs])
        own = read - _SHARED_ROOTS
        if not own:
            own = frozenset((result.number,))
            read = read | own
        name = node.op.name
        if name == "dynamic_slice":
            self._slices[result.number] = node
        if name in _NEW:
            same = _NOTHING
        elif name in MOVES and name != "concat":
            same = inputs[0].same
        else:
            same = _union(
                [reach.same for reach, value in zip(inputs, node.inputs, strict=True) if value.dtype is result.dtype]
            )
        begins = read
        if name not in MOVES:
            begins, same = own, same - _SHARED_ROOTS
        for value in node.results:
            self._known[value.number] = Reach(begins, read, same)

    def _update(self, node: Node) -> None:
        target, *others = (self.reach(value) for value in node.inputs)
        number = node.results[0].number
        if node.op.name == "dynamic_update_slice" and node.inputs[1].spec == node.inputs[0].spec:
            self._known[number] = others[0]
            return
        if node.op.name == "dynamic_update_slice" and self._is_row_copy(node):
            self._known[number] = target
            return
        read = _union([reach.read for reach in others])
        self.updates.append(Update(number, target.begins, read))
        self._known[number] = Reach(target.begins, target.read | read, target.same)

    def _is_row_copy(self, node: Node) -> bool:
        """Returns whether an update copies one row of an input to another row, each given by an input of its own.

        The read elements are not overwritten, because rows do not overlap. Compilers copy within the buffer, if a
        guarded update copies the whole input first. IREE refuses a copy of a row to itself when it is called.
        """
        whole, row, *places = node.inputs
        source = self._slices.get(row.number)
        if source is None or source.inputs[0].number != whole.number:
            return False
        axes = [axis for axis, (size, of) in enumerate(zip(row.shape, whole.shape, strict=True)) if size != of]
        if len(axes) != 1 or row.shape[axes[0]] != 1:
            return False
        one, other = source.inputs[1 + axes[0]], places[axes[0]]
        return one.number != other.number and all(x.op_name == "placeholder" for x in (whole, one, other))

    def _chosen(self, result: Value, same: Roots, read: Roots = _NOTHING) -> None:
        """Makes a result a root of its own, which may also be a part of others.

        Compilers drop loops of one round, carried values that do not change, and branches that are known: the inputs of
        such a result count as read.
        """
        roots = same | read | {result.number}
        self._known[result.number] = Reach(roots, roots, same)

    def _region(self, graph: ComputeGraph) -> list[Reach]:
        self.nodes(graph.nodes)
        return [self.reach(value) for value in graph.outputs.values()]

    def _loop(self, node: Node) -> None:
        """Takes a loop: a carried value may be a part of any that was carried in its place in another round."""
        cond, body, carried = node.attributes
        before = len(self.updates)
        self._region(cond)
        outputs = self._region(body)
        numbers = [value.number for value in body.inputs.values()]
        begun = [self.reach(value).same for value in node.inputs[:carried]]
        same = _carried(numbers, begun, [output.same for output in outputs])
        for place in range(before, len(self.updates)):
            number, target, read = self.updates[place]
            self.updates[place] = Update(number, _replaced(target, same), _replaced(read, same))
        inside = {number: self.reach(value).read for number, value in zip(numbers, node.inputs[:carried], strict=False)}
        for result, number, output in zip(node.results, numbers, outputs, strict=True):
            read = _replaced(_replaced(output.read, same), inside) | inside.get(number, _NOTHING)
            self._chosen(result, same[number].difference(numbers), read.difference(numbers))


def _carried(numbers: Sequence[int], begun: Sequence[Roots], outputs: Sequence[Roots]) -> dict[int, Roots]:
    """Returns the roots that each carried value may be a part of, itself among them, by its number."""
    same = {number: roots | {number} for number, roots in zip(numbers, begun, strict=True)}
    changed = True
    while changed:
        changed = False
        for number, output in zip(numbers, outputs, strict=True):
            roots = same[number] | _replaced(output, same)
            changed |= roots != same[number]
            same[number] = roots
    return same


def _replaced(roots: Roots, by: Mapping[int, Roots]) -> Roots:
    if roots.isdisjoint(by):
        return roots
    return _union([by.get(root, frozenset((root,))) for root in roots])


def _union(parts: Sequence[Roots]) -> Roots:
    return parts[0].union(*parts[1:]) if parts else _NOTHING
