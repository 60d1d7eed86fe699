"""Plan of a streamed lowering: which results of which stretch are needed.

From the uses between stretches alone, a sweep from the outputs backward finds what is live: exactly what pruning the
whole graph finds.
"""

from __future__ import annotations  # array[int] is subscriptable from Python 3.12 on only

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from compile_dag import ComputeGraph, Node, Value
from compile_hlo.directions import (
    LoweredArgument,
)
from lang_core import GraphError, Literal, TensorSpec

# Attributes that are new objects in each recording.
_NOT_COMPARED: Final = (Literal, ComputeGraph)
_WORD: Final = (1 << 64) - 1

# The stretch of what is given from outside, and that of writes to arguments: what depends on one needs it.
INPUT: Final = -1
WRITE: Final = -2


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


class Sweep:
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
            (self.read if stretch == INPUT else self.writes).add(number)
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
