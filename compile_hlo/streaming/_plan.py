"""Pass 1 of streaming: which results of which stretch are needed, without keeping any node.

While a stretch is recorded, each of its values carries the set of the stretch's inputs that it depends on. When the
stretch ends its nodes go; the values that later stretches still hold carry their sets with them. From the uses between
stretches alone, a sweep from the outputs backward finds what is live: exactly what pruning the whole graph finds.
"""

from __future__ import annotations  # array[int] is subscriptable from Python 3.12 on only

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from compile_dag import ComputeGraph, Node, Value, has_tags
from compile_hlo.directions import (
    NONE,
    LoweredArgument,
    Origin,
    Origins,
    Written,
    WrittenAt,
    directions_of,
    note_all,
    origins_of,
    updates_old,
)
from compile_hlo.streaming._stretches import StretchSink
from lang_core import Argument, GraphError, Literal, TensorSpec

# Attributes that are new objects in each recording.
_NOT_COMPARED: Final = (Literal, ComputeGraph)
_WORD: Final = (1 << 64) - 1

# The stretch of what is given from outside, and that of writes to arguments: what depends on one needs it.
INPUT: Final = -1
WRITE: Final = -2


@dataclass(frozen=True, slots=True)
class StretchPlan:
    """What pass 2 has to know of a stretch.

    Attributes:
        live: serials of the results that later stretches, or the outputs, need.
        last_uses: (stretch, serial) of the values that no later stretch needs.
    """

    live: frozenset[int]
    last_uses: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Plan:
    """What pass 1 found out.

    Attributes:
        results: the outputs' specs by name.
        nodes: how many were recorded.
        stretches: how many stretches have nodes.
        fingerprints: of each stretch's nodes.
        directions: of the tensor arguments.
    """

    results: dict[str, TensorSpec]
    nodes: int
    stretches: int
    fingerprints: array[int]
    directions: tuple[LoweredArgument, ...]
    _live: list[frozenset[int]] = field(default_factory=list)
    _dropped: array[int] = field(default_factory=lambda: array("q"))
    _dropped_at: array[int] = field(default_factory=lambda: array("q"))

    def stretch(self, number: int, found: int) -> StretchPlan:
        """The plan of one stretch.

        Args:
            number: of the stretch.
            found: the fingerprint of what was recorded this time.

        Raises:
            GraphError: pass 1 recorded something else.
        """
        if number >= self.stretches or self.fingerprints[number] != found:
            raise GraphError(_DIFFERS)
        begin, end = self._dropped_at[2 * number], self._dropped_at[2 * number + 1]
        pairs = self._dropped[2 * begin : 2 * end]
        return StretchPlan(self._live[number], tuple(zip(pairs[::2], pairs[1::2], strict=True)))

    def check_complete(self, stretches: int) -> None:
        """Checks that as many stretches were recorded again.

        Raises:
            GraphError: there were fewer.
        """
        if stretches != self.stretches:
            raise GraphError(_DIFFERS)


def fingerprint(nodes: Sequence[Node]) -> int:
    """Tells apart what two recordings of a stretch could have different: ops, attributes, operands and specs.

    Operands count by their marks, which both passes begin with (stretch, serial). The bytes of constants, and what
    lies inside regions, do not count.
    """
    value = 0
    for node in nodes:
        attributes = tuple([each for each in node.attributes if type(each) not in _NOT_COMPARED])
        operands = tuple([each.mark[:2] for each in node.inputs])
        value = hash((value, node.op.name, attributes, operands, node.results[0].spec))
    return value & _WORD


_DIFFERS: Final = (
    "streaming records a model twice, and the second recording was not like the first: a model must record the same "
    "ops each time (no randomness, no state that a call changes); --lowering=buffered records it once"
)


class PlanningSink(StretchSink):
    """Records into a plan.

    A value's mark is (stretch, serial, mask, origins): bit i of the mask is set if the value depends on input i of its
    stretch; the origins are the tensor arguments that it may be.

    Args:
        arguments: of the function.
    """

    def __init__(self, arguments: Sequence[Argument]) -> None:
        super().__init__()
        self._arguments = arguments
        self._writes: dict[tuple[int, tuple[tuple[int, WrittenAt], ...]], int] = {}
        self._inputs: dict[tuple[int, int], int] = {}  # of the present stretch: (stretch, serial) -> bit
        # All uses between stretches: of stretch n, those from _begins[n] on. Masks are numbers into _masks.
        self._uses = array("q")
        self._begins = array("q")
        self._masks: dict[int, int] = {}
        self._fingerprints = array("Q")
        self._count = 0
        self._tagged: dict[int, int] = {}  # stretch -> mask of what its tags need

    def begin(self, name: str, inputs: Mapping[str, Value]) -> None:
        """Marks the inputs."""
        del name
        tensors = 0
        for serial, (value, argument) in enumerate(zip(inputs.values(), self._arguments, strict=True)):
            origins = NONE
            if argument.kind == "tensor":
                origins, tensors = {tensors: Origin.GIVEN}, tensors + 1
            value.mark = INPUT, serial, 0, origins

    def _number_results(self, node: Node) -> None:
        self._count += 1
        mask = 0
        aliases = False
        for value in node.inputs:
            number, serial, depends, origins = value.mark
            mask |= depends if number == self.number else 1 << self._input(number, serial, depends)
            aliases = aliases or bool(origins)
        for value in node.results:
            value.mark = self.number, self.serial, mask, NONE
            self.serial += 1
        if aliases:
            mask = self._follow(node, mask)
        if has_tags(node):
            self._tagged[self.number] = self._tagged.get(self.number, 0) | mask

    def _follow(self, node: Node, mask: int) -> int:
        """Notes what the results may be, and what is written if one of them is needed; returns the mask with that."""
        written: Written = {}
        found = origins_of(node, _marked, written)
        if written:
            key = (len(self._writes) if updates_old(written) else -1), tuple(written.items())
            mask |= 1 << self._input(WRITE, self._writes.setdefault(key, len(self._writes)), 0)
        for place, value in enumerate(node.results):
            value.mark = (*value.mark[:2], mask, found[place] if place < len(found) else NONE)
        return mask

    def _input(self, number: int, serial: int, mask: int) -> int:
        key = number, serial
        bit = self._inputs.get(key)
        if bit is None:
            if not self._inputs:
                self._begin_uses()
            bit = self._inputs[key] = len(self._inputs)
            self._uses.extend((number, serial, self._masks.setdefault(mask, len(self._masks))))
        return bit

    def _begin_uses(self) -> None:
        while len(self._begins) <= self.number:
            self._begins.append(len(self._uses) // 3)

    def stretch(self, nodes: list[Node]) -> None:
        """Forgets the nodes."""
        self._fingerprints.append(fingerprint(nodes))
        self._begin_uses()
        self._inputs = {}

    def end(self, outputs: Mapping[str, Value]) -> Plan:
        """Sweeps backward from the outputs."""
        self._finish()
        self._begin_uses()
        results = {name: value.spec for name, value in outputs.items()}
        sweep = _Sweep(self._uses, self._begins, list(self._masks), self._tagged)
        for value in outputs.values():
            sweep.need(*value.mark[:3])
        plan = sweep.run(Plan(results, self._count, self.number, self._fingerprints, ()))
        plan.directions = self._directions(sweep, outputs)
        return plan

    def _directions(self, sweep: _Sweep, outputs: Mapping[str, Value]) -> tuple[LoweredArgument, ...]:
        written: Written = {}
        for number, (_, found) in enumerate(self._writes):
            if number in sweep.writes:
                note_all(written, found)
        places = [place for place, argument in enumerate(self._arguments) if argument.kind == "tensor"]
        return directions_of(
            [self._arguments[place] for place in places],
            written,
            {number for number, place in enumerate(places) if place in sweep.read},
            {name: _marked(value) for name, value in outputs.items()},
        )


def _marked(value: Value) -> Origins:
    """The origins in a value's mark; none of a value inside a region that is no argument of it."""
    return NONE if value.mark is None else value.mark[3]


class _Sweep:
    """From the last stretch to the first: what is needed of each."""

    def __init__(self, uses: array[int], begins: array[int], masks: list[int], tagged: dict[int, int]) -> None:
        self._uses, self._begins, self._masks = uses, begins, masks
        self._needed: dict[int, set[int]] = {}
        self._depends: dict[int, int] = tagged
        self.read: set[int] = set()
        self.writes: set[int] = set()

    def need(self, number: int, serial: int, mask: int) -> bool:
        """Notes that a value is needed; says whether this is new."""
        if number < 0:
            (self.read if number == INPUT else self.writes).add(serial)
            return False
        serials = self._needed.setdefault(number, set())
        if serial in serials:
            return False
        serials.add(serial)
        self._depends[number] = self._depends.get(number, 0) | mask
        return True

    def run(self, plan: Plan) -> Plan:
        """Fills the plan."""
        known: dict[frozenset[int], frozenset[int]] = {}
        live: list[frozenset[int]] = []
        bounds: list[tuple[int, int]] = []
        for number in reversed(range(plan.stretches)):
            begin = len(plan._dropped) // 2
            self._needs_of(number, plan._dropped)
            bounds.append((begin, len(plan._dropped) // 2))
            serials = frozenset(self._needed.pop(number, ()))
            live.append(known.setdefault(serials, serials))
        plan._live = live[::-1]
        for pair in reversed(bounds):
            plan._dropped_at.extend(pair)
        return plan

    def _needs_of(self, number: int, dropped: array[int]) -> None:
        depends = self._depends.pop(number, 0)
        first = self._begins[number]
        bit = 0
        while depends >> bit:
            if depends >> bit & 1:
                source, serial, mask = self._uses[3 * (first + bit) : 3 * (first + bit) + 3]
                if self.need(source, serial, self._masks[mask]):
                    dropped.extend((source, serial))
            bit += 1
