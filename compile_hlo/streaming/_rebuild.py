"""Nodes made again from a form and an occurrence of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from compile_dag import Call, ComputeGraph, Node, Recording, Stretch, Value
from compile_hlo.streaming._form import Form, NodeForm, Occurrence, RegionForm, Same
from lang_core import Literal, Op, TensorSpec

_UNKNOWN: Final = "unknown"
# Values made again belong to no recording that is open: no op takes them.
_REPLAYED: Final = Recording()


def made_again(spec: TensorSpec, number: int, op_name: str, path: str, line: str) -> Value:
    """Returns a value as it was recorded."""
    return Value(spec, _REPLAYED, op_name, path, line, number)


def nodes_of(
    form: Form, occurrence: Occurrence, literals: Sequence[Literal], ops: Sequence[Op], known: Mapping[int, Value]
) -> list[Node]:
    """Returns the nodes of a stretch as they were recorded.

    Args:
        form: form of the stretch.
        occurrence: the stretch's individual part.
        literals: literals of the form, in order.
        ops: ops by number.
        known: values from outside by number; those that are missing are made up, without an origin.
    """
    values: dict[int, Value] = {}
    for place, (number, spec) in enumerate(zip(occurrence.outside, form.outside, strict=True), 1):
        value = known.get(number)
        values[-place] = made_again(spec, number, _UNKNOWN, "", _UNKNOWN) if value is None else value
    return _Builder(form, occurrence, literals, ops, values).all()


class _Builder:
    """Builds the nodes of one stretch."""

    def __init__(
        self,
        form: Form,
        occurrence: Occurrence,
        literals: Sequence[Literal],
        ops: Sequence[Op],
        values: dict[int, Value],
    ) -> None:
        self._form = form
        self._occurrence = occurrence
        self._literals = iter(literals)
        self._ops = ops
        self._values = values
        self._calls: dict[int, Call] = {}
        self._stretches: dict[int, Stretch] = {0: Stretch(occurrence.block, occurrence.stretch)}

    def all(self) -> list[Node]:
        """Returns the nodes, and completes their calls."""
        nodes = self._nodes(self._form.nodes)
        for number, call in self._calls.items():
            call.results = tuple(map(self._given, self._form.calls[number][3]))
        return nodes

    def _nodes(self, forms: Sequence[NodeForm]) -> list[Node]:
        values, occurrence = self._values, self._occurrence
        nodes: list[Node] = []
        for op_number, operands, attributes, specs, first, path_number, line, call, stretch in forms:
            op, path = self._ops[op_number], occurrence.paths[path_number]
            inputs = tuple([values[place] for place in operands])
            attributes = self._attributes(op, attributes)
            numbers = enumerate(specs, occurrence.first + first)
            results = [made_again(spec, number, op.name, path, line) for number, spec in numbers]
            values.update(enumerate(results, first))
            nodes.append(
                Node(
                    op,
                    inputs,
                    attributes,
                    tuple(results),
                    self._stretch(stretch),
                    None if call < 0 else self._call(call),
                )
            )
        return nodes

    def _attributes(self, op: Op, attributes: tuple[Any, ...]) -> tuple[Any, ...]:
        if op.name == "constant":
            return (next(self._literals),)
        if op.name == "parameter":
            number, spec = attributes
            return self._occurrence.parameters[number], spec
        if RegionForm in map(type, attributes):
            return tuple([self._region(entry) if isinstance(entry, RegionForm) else entry for entry in attributes])
        return attributes

    def _region(self, region: RegionForm) -> ComputeGraph:
        inputs: dict[str, Value] = {}
        for name, place, spec, path, line in region.inputs:
            number, path = self._occurrence.first + place, self._occurrence.paths[path]
            inputs[name] = self._values[place] = made_again(spec, number, "placeholder", path, line)
        nodes = tuple(self._nodes(region.nodes))
        return ComputeGraph(region.name, inputs, nodes, {name: self._values[place] for name, place in region.outputs})

    def _stretch(self, number: int) -> Stretch:
        """Returns a stretch; those of blocks in regions are told apart by negative numbers."""
        stretch = self._stretches.get(number)
        return self._stretches.setdefault(number, Stretch("", -number)) if stretch is None else stretch

    def _call(self, number: int) -> Call:
        call = self._calls.get(number)
        if call is None:
            name, inputs, attributes, _, outer = self._form.calls[number]
            attributes = tuple([entry.value if isinstance(entry, Same) else entry for entry in attributes])
            around = None if outer < 0 else self._call(outer)
            call = self._calls[number] = Call(name, tuple(map(self._given, inputs)), attributes, around)
            call.is_whole = True
        return call

    def _given(self, entry: Any) -> Any:
        if isinstance(entry, Same):
            return entry.value
        if isinstance(entry, tuple):
            return tuple(map(self._given, entry))
        return None if entry is None else self._values[entry]
