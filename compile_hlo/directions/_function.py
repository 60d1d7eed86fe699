"""Directions of an entry point's arguments, stretch by stretch or of a whole graph."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from compile_dag import ComputeGraph, Node, Value
from compile_hlo.directions._dataflow import add_origins, flow_of, made_by
from compile_hlo.directions._direction import Direction, WrittenAt
from compile_hlo.directions._events import (
    NONE,
    Event,
    EventKind,
    Events,
    Origin,
    Origins,
    add_use,
    add_write,
    seen_from_root,
)
from compile_hlo.directions._signature import LoweredArgument
from lang_core import Argument, GraphError


class StretchUses(NamedTuple):
    """Uses that the function's flow is told of. Values are named by their numbers.

    Attributes:
        reads: values that the nodes use.
        events: uses of given values, and their places.
        origins: which of the given values each result may be, by result.
    """

    reads: tuple[int, ...]
    events: tuple[tuple[Event, WrittenAt], ...]
    origins: tuple[tuple[int, Origins], ...]


class StretchFlow:
    """Uses that a stretch, a unit of lowering, makes of the values it is given. Values are named by their numbers.

    Args:
        nodes: nodes of the stretch.

    Attributes:
        events: uses of the given values.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.events: Events = {}
        self._made = made_by(nodes)
        self._results = flow_of(nodes, lambda value: {value.number: Origin.GIVEN}, self.events)

    def origins(self, value: Value) -> Origins:
        """Returns which of the given values a value may be."""
        return self._results.get(value.number, NONE) if value.number in self._made else {value.number: Origin.GIVEN}

    def uses(self, nodes: Sequence[Node], results: Iterable[Value]) -> StretchUses:
        """Returns the uses of the stretch.

        Args:
            nodes: nodes of the stretch.
            results: those of their results that are used later.
        """
        reads = dict.fromkeys([value.number for node in nodes for value in node.inputs])
        origins = tuple([(value.number, self.origins(value)) for value in results])
        return StretchUses(tuple(reads), tuple(self.events.items()), origins)

    def updated(self) -> list[int]:
        """Returns the given values that the stretch updates in place."""
        return [event.root for event, place in self.events.items() if place.certain]

    def taken_over(self, result: Value) -> list[int]:
        """Returns the given values that a result of the stretch is an update of."""
        updated = self.updated()
        return [root for root, how in self.origins(result).items() if Origin.CERTAIN in how and root in updated]


class FunctionFlow:
    """Follows the buffers of an entry point's arguments. Memory is proportional to the arguments.

    Args:
        arguments: arguments as declared.
        inputs: their values, in order.
    """

    def __init__(self, arguments: Sequence[Argument], inputs: Iterable[Value]) -> None:
        self._tensors = tensor_roots(arguments, inputs)
        self._unread = set(self._tensors)
        self._origins: dict[int, Origins] = {root: {root: Origin.GIVEN} for root in self._tensors}
        self._events: Events = {}

    def donated(self, number: int) -> bool:
        """Returns whether the value of this number lies in the buffer of an argument that is donated."""
        origins = self._origins.get(number, NONE)
        return any(
            Origin.CERTAIN in how and self._tensors[root].alias_result is not None for root, how in origins.items()
        )

    def stretch(self, uses: StretchUses) -> None:
        """Adds a stretch."""
        self._unread.difference_update(uses.reads)
        for event, place in uses.events:
            for root, how in self._origins.get(event.root, NONE).items():
                if event.kind is EventKind.WRITTEN:
                    add_write(self._events, root, place, place.certain and Origin.CERTAIN in how)
                for kind in seen_from_root(event.kind, how):
                    add_use(self._events, Event(kind, root), place)
        for number, given in uses.origins:
            origins: dict[int, Origin] = {}
            for root, how in given.items():
                add_origins(origins, how, self._origins.get(root, NONE))
            if origins:
                self._origins[number] = origins

    def forget(self, numbers: Iterable[int]) -> None:
        """Drops the facts of values that are not used any more, given by their numbers."""
        for number in numbers:
            if number not in self._tensors:
                self._origins.pop(number, None)

    def shares(self, result: str, value: Value) -> bool:
        """Returns whether a result may lie in an argument's buffer that is to hold something else in the end.

        IREE gives out an argument's buffer for such a result, without a copy: the result is then wrong.

        Args:
            result: name of the result.
            value: value of the result, of the last stretch.
        """
        for root, how in self._origins.get(value.number, NONE).items():
            taken_by = self._tensors[root].alias_result
            written = Event(EventKind.WRITTEN, root) in self._events
            if taken_by not in (None, result) or (Origin.OLD in how and written):
                return True
        return False

    def end(self, outputs: Mapping[str, Value]) -> tuple[LoweredArgument, ...]:
        """Returns the directions of the tensor arguments, given the function's results by name."""
        self._unread.difference_update([value.number for value in outputs.values()])
        results = {name: self._origins.get(value.number, NONE) for name, value in outputs.items()}
        return directions_of(self._tensors, self._events, self._tensors.keys() - self._unread, results)


def tensor_roots(arguments: Sequence[Argument], inputs: Iterable[Value]) -> dict[int, Argument]:
    """Returns the tensors among a function's arguments, in order, by the numbers of their values."""
    pairs = zip(inputs, arguments, strict=True)
    return {value.number: argument for value, argument in pairs if argument.kind == "tensor"}


def in_place_of(tensors: Mapping[int, Argument], events: Events, results: Mapping[str, Origins]) -> frozenset[str]:
    """Returns the names of the arguments that results take over as updates of them.

    Only these may be told to IREE. It writes any other result into the argument's buffer as soon as it is computed,
    even if ops that read the argument have yet to run (IREE 3.13). For the same reason, other ops must not read the
    initial contents of an updated argument, or its contents between two updates, and other results must not be the
    argument or an update of it.

    Args:
        tensors: tensor arguments by root.
        events: uses of them.
        results: origins of the results by name.
    """
    names = []
    kinds: dict[int, set[EventKind]] = {root: set() for root in tensors}
    for event in events:
        kinds[event.root].add(event.kind)
    for root, argument in tensors.items():
        how = results.get(argument.alias_result or "", NONE).get(root, Origin.POSSIBLE)
        others = [
            origins.get(root, Origin.POSSIBLE) for name, origins in results.items() if name != argument.alias_result
        ]
        apart = Origin.OLD in how or any(also & (Origin.OLD | Origin.CERTAIN) for also in others)
        apart = apart or EventKind.READ_OLD in kinds[root]
        apart = apart or kinds[root] >= {EventKind.UPDATED_AGAIN, EventKind.READ_UPDATED}
        if Origin.ALWAYS in how and not (EventKind.WRITTEN in kinds[root] and apart):
            names.append(argument.name)
    return frozenset(names)


def directions_of(
    tensors: Mapping[int, Argument], events: Events, read: Container[int], results: Mapping[str, Origins]
) -> tuple[LoweredArgument, ...]:
    """Returns the directions of a function's tensor arguments, in order.

    Args:
        tensors: tensor arguments by root.
        events: uses of them.
        read: roots of those that are read.
        results: origins of the results by name.
    """
    in_place = in_place_of(tensors, events, results)
    return tuple(
        _direction(argument, events.get(Event(EventKind.WRITTEN, root)), root in read, argument.name in in_place)
        for root, argument in tensors.items()
    )


def graph_directions(graph: ComputeGraph, arguments: Sequence[Argument]) -> tuple[LoweredArgument, ...]:
    """Returns the directions of the arguments of a whole graph, as FunctionFlow finds them."""
    given = zip(arguments, graph.inputs.values(), strict=False)  # a module's writer refuses other arguments
    tensors = {value.number: argument for argument, value in given if argument.kind == "tensor"}
    begun: dict[int, Origins] = {root: {root: Origin.GIVEN} for root in tensors}
    events: Events = {}
    origins = begun | flow_of(graph.nodes, lambda value: begun.get(value.number, NONE), events)
    outputs = graph.outputs
    used = {value.number for node in graph.nodes for value in node.inputs}
    used |= {value.number for value in outputs.values()}
    results = {name: origins.get(value.number, NONE) for name, value in outputs.items()}
    return directions_of(tensors, events, tensors.keys() & used, results)


def _direction(argument: Argument, written: WrittenAt | None, read: bool, in_place: bool) -> LoweredArgument:
    donated = argument.alias_result is not None
    effective: Direction = "IN"
    if donated or (written is not None and written.certain):
        effective = "INOUT" if read else "OUT"
    return LoweredArgument(
        argument.name,
        argument.spec,
        argument.kind,
        argument.alias_result,
        effective,
        guarded=written is not None and not donated,
        in_place=in_place,
        bounds=argument.bounds,
        copied=argument.copied,
        written=written,
    )


def check_declared(entry_point: str, directions: Iterable[LoweredArgument]) -> None:
    """Checks that an entry point's arguments are declared as it uses them.

    Raises:
        GraphError: an argument that is neither donated nor copied is updated in place.
    """
    for argument in directions:
        if argument.declared == "IN" and argument.effective != "IN" and not argument.copied:
            raise GraphError(
                f"entry point {entry_point!r}: argument {argument.name!r} is declared IN and is not donated, but "
                f"{argument.written} updates it in place: declare the result that takes over its buffer "
                f"(alias_result=...), or declare it copied=True, and sessions copy it before each call"
            )
