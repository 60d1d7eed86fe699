"""Directions of an entry point's arguments, stretch by stretch."""

from collections.abc import Container, Iterable, Mapping, Sequence

from compile_dag import ComputeGraph, Node, Value
from compile_hlo.directions._dataflow import NONE, flow_of, follow, made_by
from compile_hlo.directions._direction import Direction, WrittenAt
from compile_hlo.directions._events import (
    AGAIN,
    READ_LATER,
    READ_OLD,
    Origin,
    Origins,
    Written,
    event,
    event_of,
    events,
    note,
    note_event,
)
from compile_hlo.directions._signature import LoweredArgument
from lang_core import Argument, GraphError


class StretchFlow:
    """What a stretch, a unit of lowering, does with the values it is given.

    Args:
        nodes: of the stretch.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._written: Written = {}
        self._made = made_by(nodes)
        self._found = flow_of(nodes, lambda value: {id(value): Origin.GIVEN}, self._written)

    def origins(self, value: Value) -> Origins:
        """Which of the given values a value may be."""
        return self._found.get(id(value), NONE) if id(value) in self._made else {id(value): Origin.GIVEN}

    @property
    def written(self) -> Mapping[int, WrittenAt]:
        """By ``id`` of given values: where the stretch may write them, and under ``event``, how else it uses them."""
        return self._written

    def updated(self) -> list[int]:
        """The given values, by ``id``, that the stretch updates in place."""
        return [root for root, place in self._written.items() if place.certain]

    def taken_over(self, result: Value) -> list[int]:
        """The given values, by ``id``, that a result of the stretch is the update of."""
        updated = self.updated()
        return [root for root, how in self.origins(result).items() if Origin.CERTAIN in how and root in updated]


class FunctionFlow:
    """Follows the buffers of an entry point's arguments. What is kept is in proportion to the arguments."""

    def __init__(self, arguments: Sequence[Argument], inputs: Iterable[Value]) -> None:
        """Begins with the arguments.

        Args:
            arguments: as declared.
            inputs: their values, in order.
        """
        given = [(value, each) for value, each in zip(inputs, arguments, strict=True) if each.kind == "tensor"]
        self._values = [value for value, _ in given]  # what is known by identity holds as long as they live
        self._tensors = [argument for _, argument in given]
        self._numbers = {id(value): number for number, value in enumerate(self._values)}
        self._unread = dict.fromkeys(self._numbers)
        self._origins: dict[int, Origins] = {key: {number: Origin.GIVEN} for key, number in self._numbers.items()}
        self._written: Written = {}

    def donated(self, value: int) -> bool:
        """Whether a value, named by its ``id``, lies in the buffer of an argument that is donated."""
        found = self._origins.get(value, NONE)
        return any(
            Origin.CERTAIN in how and self._tensors[number].alias_result is not None for number, how in found.items()
        )

    def stretch(self, nodes: Sequence[Node], results: Iterable[Value], flow: StretchFlow) -> None:
        """Adds a stretch.

        Args:
            nodes: of the stretch.
            results: of the nodes, those that are used later.
            flow: what it does.
        """
        if self._unread:
            self._read(value for node in nodes for value in node.inputs)
        for key, place in flow.written.items():
            kind, root = event_of(key)
            for number, how in self._origins.get(root, NONE).items():
                if not kind:
                    note(self._written, number, place, place.certain and Origin.CERTAIN in how)
                for each in events(kind, how):
                    note_event(self._written, each, number, place)
        for value in results:
            found: dict[int, Origin] = {}
            for root, how in flow.origins(value).items():
                follow(found, how, self._origins.get(root, NONE))
            if found:
                self._origins[id(value)] = found

    def forget(self, values: Iterable[Value]) -> None:
        """Drops what is known of values that are not used any more."""
        for value in values:
            if id(value) not in self._numbers:
                self._origins.pop(id(value), None)

    def shares(self, result: str, value: Value) -> bool:
        """Whether a result may lie in an argument's buffer that is to hold something else in the end.

        IREE gives out an argument's buffer for such a result, without a copy: the result is then wrong.

        Args:
            result: its name.
            value: the result's, of the last stretch.
        """
        for number, how in self._origins.get(id(value), NONE).items():
            taken_by = self._tensors[number].alias_result
            if taken_by not in (None, result) or (Origin.OLD in how and number in self._written):
                return True
        return False

    def end(self, outputs: Mapping[str, Value]) -> tuple[LoweredArgument, ...]:
        """Ends with the results."""
        self._read(outputs.values())
        unread = {self._numbers[key] for key in self._unread}
        return directions_of(
            self._tensors,
            self._written,
            set(self._numbers.values()) - unread,
            {name: self._origins.get(id(value), NONE) for name, value in outputs.items()},
        )

    def _read(self, values: Iterable[Value]) -> None:
        for value in values:
            self._unread.pop(id(value), None)


def in_place_of(
    tensors: Sequence[Argument], written: Mapping[int, WrittenAt], results: Mapping[str, Origins]
) -> frozenset[str]:
    """The arguments that results take over as updates of them.

    Only these may be told to IREE. It writes any other result into the argument's buffer as soon as it is computed,
    even where ops that read the argument have yet to run (IREE 3.13). For the same reason nothing else may read what
    an argument that is updated held at first, or between two updates, and no other result be the argument or an update
    of it.

    Args:
        tensors: the tensor arguments.
        written: where, by their numbers; and where they are read.
        results: origins of the results by name: numbers of tensor arguments.
    """
    found = []
    for number, each in enumerate(tensors):
        how = results.get(each.alias_result or "", NONE).get(number, Origin.POSSIBLE)
        others = [
            origins.get(number, Origin.POSSIBLE) for name, origins in results.items() if name != each.alias_result
        ]
        apart = Origin.OLD in how or any(also & (Origin.OLD | Origin.CERTAIN) for also in others)
        apart = apart or event(READ_OLD, number) in written
        apart = apart or (event(AGAIN, number) in written and event(READ_LATER, number) in written)
        if Origin.ALWAYS in how and not (number in written and apart):
            found.append(each.name)
    return frozenset(found)


def directions_of(
    tensors: Sequence[Argument], written: Mapping[int, WrittenAt], read: Container[int], results: Mapping[str, Origins]
) -> tuple[LoweredArgument, ...]:
    """Directions of a function's arguments.

    Args:
        tensors: the tensor arguments.
        written: where, by their numbers.
        read: the numbers of those that are read.
        results: origins of the results by name: numbers of tensor arguments.
    """
    in_place = in_place_of(tensors, written, results)
    return tuple(
        _direction(argument, written.get(number), number in read, argument.name in in_place)
        for number, argument in enumerate(tensors)
    )


def graph_directions(graph: ComputeGraph, arguments: Sequence[Argument]) -> tuple[LoweredArgument, ...]:
    """Directions of the arguments of a whole graph, as FunctionFlow finds them."""
    given = zip(graph.inputs.values(), arguments, strict=False)  # a module's writer refuses other arguments
    tensors = [(value, each) for value, each in given if each.kind == "tensor"]
    numbers = {id(value): number for number, (value, _) in enumerate(tensors)}
    begun: dict[int, Origins] = {key: {number: Origin.GIVEN} for key, number in numbers.items()}
    written: Written = {}
    found = begun | flow_of(graph.nodes, lambda value: begun.get(id(value), NONE), written)
    outputs = graph.outputs
    used = {id(value) for node in graph.nodes for value in node.inputs} | {id(value) for value in outputs.values()}
    return directions_of(
        [each for _, each in tensors],
        written,
        {number for key, number in numbers.items() if key in used},
        {name: found.get(id(value), NONE) for name, value in outputs.items()},
    )


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
    """Refuses what an entry point says of its arguments if it does otherwise.

    Raises:
        GraphError: an argument that is neither donated nor copied is updated in place.
    """
    for each in directions:
        if each.declared == "IN" and each.effective != "IN" and not each.copied:
            raise GraphError(
                f"entry point {entry_point!r}: argument {each.name!r} is declared IN and is not donated, but "
                f"{each.written} updates it in place: declare the result that takes over its buffer "
                f"(alias_result=...), or declare it copied=True, and sessions copy it before each call"
            )
