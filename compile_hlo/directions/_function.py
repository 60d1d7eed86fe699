"""Directions of an entry point's arguments, stretch by stretch."""

from collections.abc import Iterable, Mapping, Sequence

from compile_dag import Node, Value
from compile_hlo.directions._dataflow import NONE, Origins, Written, flow_of, made_by
from compile_hlo.directions._direction import ArgumentDirection, Direction, WrittenAt
from lang_core import Argument, GraphError


class StretchFlow:
    """What a stretch, a unit of lowering, does with the values it is given.

    Args:
        nodes: of the stretch.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._written: Written = {}
        self._made = made_by(nodes)
        self._found = flow_of(nodes, lambda value: {id(value): True}, self._written)

    def origins(self, value: Value) -> Origins:
        """Which of the given values a value may be."""
        return self._found.get(id(value), NONE) if id(value) in self._made else {id(value): True}

    @property
    def written(self) -> Mapping[int, WrittenAt]:
        """By ``id`` of given values: where the stretch may write them."""
        return self._written

    def updated(self) -> list[int]:
        """The given values, by ``id``, that the stretch updates in place."""
        return [root for root, place in self._written.items() if place.certain]

    def taken_over(self, result: Value) -> list[int]:
        """The given values, by ``id``, that a result of the stretch is the update of."""
        places = {root: self._written.get(root) for root, certain in self.origins(result).items() if certain}
        return [root for root, place in places.items() if place is not None and place.certain]


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
        self._origins: dict[int, Origins] = {key: {number: True} for key, number in self._numbers.items()}
        self._written: Written = {}

    def donated(self, value: int) -> bool:
        """Whether a value, named by its ``id``, lies in the buffer of an argument that is donated."""
        found = self._origins.get(value, NONE)
        return any(certain and self._tensors[number].alias_result is not None for number, certain in found.items())

    def stretch(self, nodes: Sequence[Node], results: Iterable[Value], flow: StretchFlow) -> None:
        """Adds a stretch.

        Args:
            nodes: of the stretch.
            results: of the nodes, those that are used later.
            flow: what it does.
        """
        if self._unread:
            self._read(value for node in nodes for value in node.inputs)
        for root, place in flow.written.items():
            for number, certain in self._origins.get(root, NONE).items():
                self._write(number, place, certain and place.certain)
        for value in results:
            found: dict[int, bool] = {}
            for root, certain in flow.origins(value).items():
                for number, also in self._origins.get(root, NONE).items():
                    found[number] = found.get(number, False) or (certain and also)
            if found:
                self._origins[id(value)] = found

    def forget(self, values: Iterable[Value]) -> None:
        """Drops what is known of values that are not used any more."""
        for value in values:
            if id(value) not in self._numbers:
                self._origins.pop(id(value), None)

    def end(self, outputs: Iterable[Value]) -> tuple[ArgumentDirection, ...]:
        """Ends with the results."""
        self._read(outputs)
        unread = {self._numbers[key] for key in self._unread}
        return tuple(
            _direction(argument, self._written.get(number), number not in unread)
            for number, argument in enumerate(self._tensors)
        )

    def _read(self, values: Iterable[Value]) -> None:
        for value in values:
            self._unread.pop(id(value), None)

    def _write(self, number: int, place: WrittenAt, certain: bool) -> None:
        before = self._written.get(number)
        if before is None or (certain and not before.certain):
            self._written[number] = WrittenAt(place.op, place.path, place.line, certain)


def _direction(argument: Argument, written: WrittenAt | None, read: bool) -> ArgumentDirection:
    donated = argument.alias_result is not None
    effective: Direction = "IN"
    if donated or (written is not None and written.certain):
        effective = "INOUT" if read else "OUT"
    return ArgumentDirection(
        argument.name,
        "INOUT" if donated else "IN",
        effective,
        written is not None and not donated,
        argument.copied,
        written,
    )


def check_declared(entry_point: str, directions: Iterable[ArgumentDirection]) -> None:
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
