"""Canonical forms: the common part of equal stretches, and the individual part of each occurrence."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from compile_dag import TAG, Call, ComputeGraph, Node, Stretch, Value, regions_of
from compile_hlo.emit import layer_of, path_in_block
from lang_core import Literal, Op, TensorSpec

# Literals of up to this many bytes are part of a form as they are, greater ones by a hash.
_SMALL: Final = 64
_HASH_BYTES: Final = 16

# Op by its number in ``OpNumbers``, operands, attributes, specs of the results, place of the first result, number of
# the path, line, number of the call (-1 for none), number of the stretch (0 but in regions that hold blocks).
NodeForm = tuple[int, tuple[int, ...], tuple[Any, ...], tuple[TensorSpec, ...], int, int, str, int, int]


class Form(NamedTuple):
    """Stretch without the differences between equal layers.

    Two stretches are the same program if their forms are equal.

    Places name values: 0, 1, ... are values of the stretch, counted from its first one; -1, -2, ... are values from
    outside, in the order of first use.

    Attributes:
        nodes: nodes, in order.
        outside: specs of the values from outside.
        calls: calls of composites: name, inputs, attributes, results, number of the outer call.
        paths: module paths, as comments in the text have them.
        exact: hash of the attributes' spelling, which distinguishes values that are equal in Python: 1 and True, 0.0
            and -0.0.
        has_tags: True if the stretch is needed because it is observed.
        is_block: True if it lies in a block.
    """

    nodes: tuple[NodeForm, ...]
    outside: tuple[TensorSpec, ...]
    calls: tuple[tuple[Any, ...], ...]
    paths: tuple[str, ...]
    exact: bytes
    has_tags: bool
    is_block: bool


class RegionForm(NamedTuple):
    """Region of an op.

    Attributes:
        name: name of the graph.
        inputs: name, place, spec, number of the path and line of each input.
        nodes: nodes, in order.
        outputs: name and place of each output.
    """

    name: str
    inputs: tuple[tuple[str, int, TensorSpec, int, str], ...]
    nodes: tuple[NodeForm, ...]
    outputs: tuple[tuple[str, int], ...]


class Same:
    """Object that was given to a composite: equal to itself alone."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return hash(type(self.value))


class Occurrence(NamedTuple):
    """Place of a stretch in a recording, with its individual part. All fields can be marshalled.

    Attributes:
        template: number of the template.
        first: number of the value that has place 0.
        block: name of the block.
        stretch: number of the stretch.
        outside: numbers of the values from outside, by place -1, -2, ...
        paths: module paths.
        parameters: paths of the parameters.
    """

    template: int
    first: int
    block: str
    stretch: int
    outside: tuple[int, ...]
    paths: tuple[str, ...]
    parameters: tuple[str, ...]


class ReadStretch(NamedTuple):
    """Stretch taken apart.

    Attributes:
        form: common part of equal stretches.
        occurrence: individual part; the template is not known yet.
        literals: literals in the order in which the form's nodes have them.
    """

    form: Form
    occurrence: Occurrence
    literals: tuple[Literal, ...]


class OpNumbers:
    """Numbers of ops, so that a form can be written to a file."""

    def __init__(self) -> None:
        self.all: list[Op] = []
        self.numbers: dict[Op, int] = {}

    def number(self, op: Op) -> int:
        """Returns the number of an op that has none yet."""
        self.all.append(op)
        return self.numbers.setdefault(op, len(self.numbers))


def read_stretch(nodes: Sequence[Node], ops: OpNumbers) -> ReadStretch:
    """Splits a stretch into its form and the individual part of this occurrence."""
    stretch = nodes[0].stretch
    reader = _Reader(_lowest(nodes[0]), stretch, ops)
    node_forms = reader.nodes(nodes)
    layer = layer_of(stretch.block)
    comments = reader.paths
    if stretch.block:
        comments = [path_in_block(path, layer) or path for path in comments]
    spelling = repr(reader.attributes).encode()
    form = Form(
        node_forms,
        tuple([value.spec for value in reader.outside.values()]),
        tuple(reader.call_forms),
        tuple(comments),
        hashlib.blake2b(spelling, digest_size=_HASH_BYTES).digest(),
        reader.has_tags,
        bool(stretch.block),
    )
    occurrence = Occurrence(
        -1,
        reader.first,
        stretch.block,
        stretch.number,
        tuple(reader.outside),
        tuple(reader.paths),
        tuple(reader.parameters),
    )
    return ReadStretch(form, occurrence, tuple(reader.literals))


class _Reader:
    """Reads the nodes of one stretch."""

    def __init__(self, first: int, stretch: Stretch, ops: OpNumbers) -> None:
        self.first = first
        self.outside: dict[int, Value] = {}
        self.paths: dict[str, int] = {}
        self.parameters: dict[str, int] = {}
        self.literals: list[Literal] = []
        self.attributes: list[Any] = []
        self.call_forms: list[tuple[Any, ...]] = []
        self.has_tags = False
        self._places: dict[int, int] = {}
        self._calls: dict[Call, int] = {}
        self._stretches = {stretch: 0}
        self._ops = ops

    def nodes(self, nodes: Iterable[Node]) -> tuple[NodeForm, ...]:
        """Returns the forms of nodes."""
        first, paths, places, numbers = self.first, self.paths, self._places, self._ops.numbers
        forms: list[NodeForm] = []
        call: Call | None = None
        call_number = -1
        for node in nodes:
            operands: list[int] = []
            for value in node.inputs:
                place = value.number - first
                if place < 0:
                    place = places.get(value.number) or self._outside(value)
                operands.append(place)
            op, attributes, results = node.op, node.attributes, node.results
            if attributes:
                if op.name in _LEAVES or ComputeGraph in map(type, attributes):
                    attributes = self._special(node)
                else:
                    self.attributes.append(attributes)
            if node.call is not call:
                call = node.call
                call_number = -1 if call is None else self._call(call)
            if op is TAG:
                self.has_tags = True
            result = results[0]
            forms.append(
                (
                    numbers[op] if op in numbers else self._ops.number(op),
                    tuple(operands),
                    attributes,
                    (result.spec,) if len(results) == 1 else tuple([value.spec for value in results]),
                    result.number - first,
                    paths.setdefault(result.path, len(paths)),
                    result.line,
                    call_number,
                    self._stretches.setdefault(node.stretch, len(self._stretches)),
                )
            )
        return tuple(forms)

    def place(self, value: Value) -> int:
        """Returns the place of a value."""
        place = value.number - self.first
        return place if place >= 0 else self._places.get(value.number) or self._outside(value)

    def _outside(self, value: Value) -> int:
        self.outside[value.number] = value
        place = self._places[value.number] = -len(self.outside)
        return place

    def _special(self, node: Node) -> tuple[Any, ...]:
        """Returns the attributes of a leaf, or of a node with regions."""
        if node.op.name == "constant":
            return (self._literal(node.attributes[0]),)
        if node.op.name == "parameter":
            path, spec = node.attributes
            return self.parameters.setdefault(path, len(self.parameters)), spec
        self.attributes.append([entry for entry in node.attributes if not isinstance(entry, ComputeGraph)])
        return tuple([self._region(entry) if isinstance(entry, ComputeGraph) else entry for entry in node.attributes])

    def _literal(self, literal: Literal) -> tuple[TensorSpec, bytes]:
        self.literals.append(literal)
        array = literal.array
        if array.nbytes <= _SMALL:
            return literal.spec, array.tobytes()
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return literal.spec, hashlib.blake2b(data, digest_size=2 * _HASH_BYTES).digest()

    def _region(self, graph: ComputeGraph) -> RegionForm:
        inputs = tuple(
            [
                (name, self.place(value), value.spec, self.paths.setdefault(value.path, len(self.paths)), value.line)
                for name, value in graph.inputs.items()
            ]
        )
        nodes = self.nodes(graph.nodes)
        return RegionForm(
            graph.name, inputs, nodes, tuple([(name, self.place(value)) for name, value in graph.outputs.items()])
        )

    def _call(self, call: Call) -> int:
        """Returns the number of a call; -1 for one that does not lie in the stretch as a whole."""
        if not call.is_whole:
            return -1
        number = self._calls.get(call)
        if number is None:
            outer = -1 if call.outer is None else self._call(call.outer)
            self.attributes.append(call.attributes)
            inputs, results = (tuple(map(self._given, values)) for values in (call.inputs, call.results))
            attributes = tuple([Same(entry) if type(entry).__hash__ is None else entry for entry in call.attributes])
            self.call_forms.append((call.name, inputs, attributes, results, outer))
            number = self._calls[call] = len(self._calls)
        return number

    def _given(self, entry: Any) -> int | Same | tuple[Any, ...] | None:
        """Returns the arguments or results of a composite, with places in place of values."""
        if isinstance(entry, Value):
            return self.place(entry)
        if type(entry) is tuple:
            return tuple(map(self._given, entry))
        return None if entry is None else Same(entry)


_LEAVES: Final = ("constant", "parameter")


def _lowest(node: Node) -> int:
    """Returns the least number of the values that a node makes, in its regions too."""
    return min(_numbers(node))


def _numbers(node: Node) -> Iterator[int]:
    yield node.results[0].number
    for region in regions_of(node):
        yield from (value.number for value in region.inputs.values())
        for inner in region.nodes[:1]:
            yield _lowest(inner)
