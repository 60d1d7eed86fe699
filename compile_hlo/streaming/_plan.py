"""Pass 1 of streaming: which results of which stretch are needed, without keeping any node.

While a stretch is recorded, each of its values carries the set of the stretch's inputs that it depends on. When the
stretch ends its nodes go; the values that later stretches still hold carry their sets with them. From the uses between
stretches alone, a sweep from the outputs backward finds what is live: exactly what pruning the whole graph finds.
"""

from __future__ import annotations  # array[int] is subscriptable from Python 3.12 on only

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from compile_dag import ComputeGraph, Node, Value, has_tags, verify_stretch
from compile_hlo.directions import (
    NONE,
    Event,
    Events,
    LoweredArgument,
    Origin,
    Origins,
    WrittenAt,
    add_all,
    directions_of,
    origins_of,
    tensor_roots,
    updates_old,
)
from compile_hlo.streaming._stretches import StretchSink
from lang_core import Argument, GraphError, Literal, TensorSpec

# Attributes that are new objects in each recording.
_NOT_COMPARED: Final = (Literal, ComputeGraph)
_WORD: Final = (1 << 64) - 1

# The stretch of what is given from outside, and that of writes to arguments: what depends on one needs it.
_INPUT: Final = -1
_WRITE: Final = -2


@dataclass(frozen=True, slots=True)
class StretchPlan:
    """Part of a plan that pass 2 needs for one stretch.

    Attributes:
        first: number of the first result.
        live: results that later stretches, or the outputs, need, counted from the first one: alike stretches share one
            set.
        last_uses: numbers of the values that no later stretch needs.
    """

    first: int
    live: frozenset[int]
    last_uses: tuple[int, ...]

    def needs(self, value: Value) -> bool:
        """Returns whether a result of the stretch is live."""
        return value.number - self.first in self.live


@dataclass(slots=True)
class Plan:
    """Result of pass 1.

    Attributes:
        results: specs of the outputs by name.
        nodes: number of recorded nodes.
        stretches: number of stretches that have nodes.
        fingerprints: fingerprint of each stretch's nodes.
        firsts: number of each stretch's first result.
        directions: directions of the tensor arguments.
    """

    results: dict[str, TensorSpec]
    nodes: int
    stretches: int
    fingerprints: array[int]
    firsts: array[int]
    directions: tuple[LoweredArgument, ...]
    _live: list[frozenset[int]] = field(default_factory=list)
    _dropped: array[int] = field(default_factory=lambda: array("q"))
    _dropped_at: array[int] = field(default_factory=lambda: array("q"))

    def stretch(self, index: int, recorded: int) -> StretchPlan:
        """Returns the plan of one stretch.

        Args:
            index: position of the stretch among those that have nodes.
            recorded: fingerprint of what was recorded this time.

        Raises:
            GraphError: pass 1 recorded something else.
        """
        if index >= self.stretches or self.fingerprints[index] != recorded:
            raise GraphError(_DIFFERS)
        begin, end = self._dropped_at[2 * index], self._dropped_at[2 * index + 1]
        return StretchPlan(self.firsts[index], self._live[index], tuple(self._dropped[begin:end]))

    def check_complete(self, stretches: int) -> None:
        """Checks that as many stretches were recorded again.

        Raises:
            GraphError: there were fewer.
        """
        if stretches != self.stretches:
            raise GraphError(_DIFFERS)


def fingerprint(nodes: Sequence[Node]) -> int:
    """Returns a hash of what two recordings of a stretch could have different: ops, attributes, operands and specs.

    Operands count by their numbers, which two recordings of the same ops have in common. The bytes of constants, and
    what lies inside regions, do not count.
    """
    value = 0
    for node in nodes:
        attributes = tuple([attribute for attribute in node.attributes if type(attribute) not in _NOT_COMPARED])
        operands = tuple([operand.number for operand in node.inputs])
        value = hash((value, node.op.name, attributes, operands, node.results[0].number, node.results[0].spec))
    return value & _WORD


_DIFFERS: Final = (
    "streaming records a model twice, and the second recording was not like the first: a model must record the same "
    "ops each time (no randomness, no state that a call changes); buffered lowering (streaming=False) records it once"
)


class _Mark(NamedTuple):
    """Note that a value carries while pass 1 runs.

    Attributes:
        stretch: index of the stretch that made the value.
        mask: bit i is set if the value depends on input i of its stretch.
        origins: tensor arguments that the value may be.
    """

    stretch: int
    mask: int
    origins: Origins


class _Writes(NamedTuple):
    """Uses that one node makes of arguments.

    Attributes:
        serial: unique number where a first update is among the events, for two of those are not the same as one;
            else -1, and alike nodes share one entry.
        events: the events.
    """

    serial: int
    events: tuple[tuple[Event, WrittenAt], ...]


class PlanningSink(StretchSink):
    """Records into a plan. A value's mark is a ``_Mark``.

    Args:
        arguments: arguments of the function.
    """

    def __init__(self, arguments: Sequence[Argument]) -> None:
        super().__init__()
        self._name = "main"
        self._arguments = arguments
        self._tensors: dict[int, Argument] = {}
        self._writes: dict[_Writes, int] = {}
        self._inputs: dict[int, int] = {}  # of the present stretch: number of a value -> bit
        self._write_inputs: dict[int, int] = {}  # likewise: number of a write -> bit
        # All uses between stretches: of stretch n, those from _begins[n] on. Masks are numbers into _masks.
        self._uses = array("q")
        self._begins = array("q")
        self._masks: dict[int, int] = {}
        self._fingerprints = array("Q")
        self._firsts = array("q")
        self._count = 0
        self._tagged: dict[int, int] = {}  # stretch -> mask of what its tags need

    def begin(self, name: str, inputs: Mapping[str, Value]) -> None:
        """Marks the inputs."""
        self._name = name
        self._tensors = tensor_roots(self._arguments, inputs.values())
        for value in inputs.values():
            origins = {value.number: Origin.GIVEN} if value.number in self._tensors else NONE
            value.mark = _Mark(_INPUT, 0, origins)

    def _recorded(self, node: Node) -> None:
        self._count += 1
        mask = 0
        aliases = False
        for value in node.inputs:
            stretch, depends, origins = value.mark
            mask |= depends if stretch == self.index else 1 << self._input(value.number, stretch, depends)
            aliases = aliases or bool(origins)
        mark = _Mark(self.index, mask, NONE)
        for value in node.results:
            value.mark = mark
        if aliases:
            mask = self._follow(node, mask)
        if has_tags(node):
            self._tagged[self.index] = self._tagged.get(self.index, 0) | mask

    def _follow(self, node: Node, mask: int) -> int:
        """Notes what the results may be, and what is written if one of them is needed; returns the mask with that."""
        events: Events = {}
        origins = origins_of(node, _origins, events)
        if events:
            writes = _Writes(len(self._writes) if updates_old(events) else -1, tuple(events.items()))
            mask |= 1 << self._write(self._writes.setdefault(writes, len(self._writes)))
        for index, value in enumerate(node.results):
            value.mark = _Mark(self.index, mask, origins[index] if index < len(origins) else NONE)
        return mask

    def _input(self, number: int, stretch: int, mask: int) -> int:
        """Returns the bit of a value of an earlier stretch."""
        bit = self._inputs.get(number)
        if bit is None:
            bit = self._inputs[number] = self._new_bit(number, stretch, mask)
        return bit

    def _write(self, number: int) -> int:
        """Returns the bit of a write."""
        bit = self._write_inputs.get(number)
        if bit is None:
            bit = self._write_inputs[number] = self._new_bit(number, _WRITE, 0)
        return bit

    def _new_bit(self, number: int, stretch: int, mask: int) -> int:
        bit = len(self._inputs) + len(self._write_inputs)
        if not bit:
            self._begin_uses()
        self._uses.extend((number, stretch, self._masks.setdefault(mask, len(self._masks))))
        return bit

    def _begin_uses(self) -> None:
        while len(self._begins) <= self.index:
            self._begins.append(len(self._uses) // 3)

    def stretch(self, nodes: list[Node]) -> None:
        """Verifies the nodes, and forgets them."""
        verify_stretch(self._name, nodes)
        self._fingerprints.append(fingerprint(nodes))
        self._firsts.append(nodes[0].results[0].number)
        self._begin_uses()
        self._inputs = {}
        self._write_inputs = {}

    def end(self, outputs: Mapping[str, Value]) -> Plan:
        """Sweeps backward from the outputs."""
        self._finish()
        self._begin_uses()
        results = {name: value.spec for name, value in outputs.items()}
        sweep = _Sweep(self._uses, self._begins, list(self._masks), self._tagged)
        for value in outputs.values():
            sweep.need(value.number, value.mark.stretch, value.mark.mask)
        plan = sweep.run(Plan(results, self._count, self.index, self._fingerprints, self._firsts, ()))
        plan.directions = self._directions(sweep, outputs)
        return plan

    def _directions(self, sweep: _Sweep, outputs: Mapping[str, Value]) -> tuple[LoweredArgument, ...]:
        events: Events = {}
        for number, writes in enumerate(self._writes):
            if number in sweep.writes:
                add_all(events, writes.events)
        return directions_of(
            self._tensors, events, sweep.read, {name: _origins(value) for name, value in outputs.items()}
        )


def _origins(value: Value) -> Origins:
    """Returns the origins in a value's mark; none for a value inside a region that is no argument of it."""
    return NONE if value.mark is None else value.mark.origins


class _Sweep:
    """Backward sweep over the stretches, which finds what is needed of each.

    Attributes:
        read: numbers of the inputs that are needed.
        writes: numbers of the writes that are needed.
    """

    def __init__(self, uses: array[int], begins: array[int], masks: list[int], tagged: dict[int, int]) -> None:
        self._uses, self._begins, self._masks = uses, begins, masks
        self._needed: dict[int, set[int]] = {}
        self._depends: dict[int, int] = tagged
        self.read: set[int] = set()
        self.writes: set[int] = set()

    def need(self, number: int, stretch: int, mask: int) -> bool:
        """Notes that a value, or a write, is needed; returns whether it is a value for which this is new."""
        if stretch < 0:
            (self.read if stretch == _INPUT else self.writes).add(number)
            return False
        numbers = self._needed.setdefault(stretch, set())
        if number in numbers:
            return False
        numbers.add(number)
        self._depends[stretch] = self._depends.get(stretch, 0) | mask
        return True

    def run(self, plan: Plan) -> Plan:
        """Fills the plan."""
        known: dict[frozenset[int], frozenset[int]] = {}
        live: list[frozenset[int]] = []
        bounds: list[int] = []
        for index in reversed(range(plan.stretches)):
            begin = len(plan._dropped)
            self._needs_of(index, plan._dropped)
            bounds += len(plan._dropped), begin
            first = plan.firsts[index]
            offsets = frozenset([number - first for number in self._needed.pop(index, ())])
            live.append(known.setdefault(offsets, offsets))
        plan._live = live[::-1]
        plan._dropped_at.extend(reversed(bounds))
        return plan

    def _needs_of(self, index: int, dropped: array[int]) -> None:
        depends = self._depends.pop(index, 0)
        first = self._begins[index]
        bit = 0
        while depends >> bit:
            if depends >> bit & 1:
                number, stretch, mask = self._uses[3 * (first + bit) : 3 * (first + bit) + 3]
                if self.need(number, stretch, self._masks[mask]):
                    dropped.append(number)
            bit += 1
