"""Pass 1 of streaming: makes the plan without keeping any node.

While a stretch is recorded, each of its values carries the set of the stretch's inputs that it depends on. When the
stretch ends its nodes go; the values that later stretches still hold carry their sets with them.
"""

from __future__ import annotations  # array[int] is subscriptable from Python 3.12 on only

from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from compile_dag import Node, Value, has_tags, verify_stretch
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
from compile_hlo.streaming._plan import INPUT, WRITE, Plan, Sweep, fingerprint
from compile_hlo.streaming._stretches import StretchSink
from lang_core import Argument


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
            value.mark = _Mark(INPUT, 0, origins)

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
            bit = self._write_inputs[number] = self._new_bit(number, WRITE, 0)
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
        sweep = Sweep(self._uses, self._begins, list(self._masks), self._tagged)
        for value in outputs.values():
            sweep.need(value.number, value.mark.stretch, value.mark.mask)
        plan = sweep.run(Plan(results, self._count, self.index, self._fingerprints, self._firsts, ()))
        plan.directions = self._directions(sweep, outputs)
        return plan

    def _directions(self, sweep: Sweep, outputs: Mapping[str, Value]) -> tuple[LoweredArgument, ...]:
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
