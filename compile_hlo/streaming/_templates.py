"""Templates: the distinct stretches of a recording. Few are in memory, the rest on disk."""

import pickle
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from compile_dag import Node, Value
from compile_hlo.directions import WrittenAt
from compile_hlo.streaming._form import Form, Occurrence, OpNumbers, ReadStretch
from compile_hlo.streaming._journal import DiskBytes
from compile_hlo.streaming._rebuild import nodes_of
from lang_core import Literal, TensorSpec

# Templates in memory take about so many bytes at most; one is always kept.
IN_MEMORY: Final = 1 << 20
_BYTES_OF_NODE: Final = 512
_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class TemplateUses:
    """Uses that a stretch makes of values from outside, by the place of each value in ``Occurrence.outside``.

    Attributes:
        reads: places of the values that are read.
        events: kind of event, place of the value, where it happens, number of the path.
        origins: place of each result with the values from outside that it may be, by their places.
    """

    reads: tuple[int, ...]
    events: tuple[tuple[Any, int, WrittenAt, int], ...]
    origins: tuple[tuple[int, tuple[tuple[int, Any], ...]], ...]


@dataclass(frozen=True, slots=True)
class Overlaps:
    """Updates of a stretch. A root inside is the distance from the stretch's first number, one outside ``~place``.

    Attributes:
        updates: distance of the result, roots of the target, roots that other operands read.
        results: distance of each result that is used later, and its roots in the order of ``Reach``.
        overlapping: distances of the results of the updates that overlap.
    """

    updates: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
    results: tuple[tuple[int, tuple[tuple[int, ...], ...]], ...]
    overlapping: frozenset[int]


@dataclass(frozen=True, slots=True)
class ResultForm:
    """Result of a stretch: its place, spec, op, number of the path, and line."""

    place: int
    spec: TensorSpec
    op_name: str
    path: int
    line: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Lowering of a stretch as a call, to be repeated for its other occurrences.

    Attributes:
        function: name of the function.
        passed: per argument the place of the value in ``Occurrence.outside``, or path of a parameter, or a parameter's
            number as a tuple of one.
        specs: specs of the arguments.
        loads: positions of the parameters among the arguments, in the order in which they are loaded.
        updated: positions of the arguments that the function updates.
        results: results of the call.
        live: live results, each with the place of the result that stands for it.
        uses: uses that the stretch makes of its values.
        overlaps: updates of the stretch.
        emitted: number of nodes that were written.
    """

    function: str
    passed: tuple[int | str | tuple[int], ...]
    specs: tuple[TensorSpec, ...]
    loads: tuple[int, ...]
    updated: frozenset[int]
    results: tuple[ResultForm, ...]
    live: tuple[tuple[ResultForm, int], ...]
    uses: TemplateUses
    overlaps: Overlaps
    emitted: int


@dataclass(slots=True)
class Variant:
    """Part of a template that is needed if certain results are live.

    Attributes:
        reads: places in ``Occurrence.outside`` of the values that are needed.
        needed: number of nodes that are needed.
        parameters: numbers and specs of the parameters that are needed.
        uses: uses that the needed nodes make of values from outside.
        repeats: calls of the stretch, by the other inputs of its text.
    """

    reads: tuple[int, ...]
    needed: int
    parameters: tuple[tuple[int, TensorSpec], ...]
    uses: TemplateUses
    repeats: dict[tuple[int, ...], Repeat] = field(default_factory=dict)


@dataclass(slots=True)
class Template:
    """Distinct stretch.

    Attributes:
        form: its form.
        literals: literals of the form, in order.
        variants: its necessary parts, by the places of the live results.
        is_changed: True if variants were added since it was last in a file.
    """

    form: Form
    literals: tuple[Literal, ...]
    variants: dict[tuple[int, ...], Variant] = field(default_factory=dict)
    is_changed: bool = False

    @property
    def size(self) -> int:
        """Estimated number of bytes."""
        return _BYTES_OF_NODE * len(self.form.nodes) + sum(literal.array.nbytes for literal in self.literals)


class Templates:
    """Templates by number.

    Args:
        on_disk: True to keep a few in memory and the rest on disk.
    """

    def __init__(self, on_disk: bool) -> None:
        self.ops = OpNumbers()
        self._present: dict[int, Template] = {}  # the one that was used last is last
        self._numbers: dict[Form, int] = {}  # of those that are present
        self._size = 0
        self._disk = DiskBytes() if on_disk else None
        # Pieces on disk, by number: of the form and literals, and of the variants as they were last put away.
        self._places, self._variants = array("q"), array("q")
        self._kept: dict[int, Template] = {}  # those that cannot be written to a file

    def number_of(self, stretch: ReadStretch) -> tuple[int, bool]:
        """Returns the number of a stretch's template, and whether it is new."""
        number = self._numbers.get(stretch.form)
        if number is not None:
            self._touch(number)
            return number, False
        number = len(self._places)
        self._places.append(_NOWHERE)
        self._variants.append(_NOWHERE)
        self._add(number, Template(stretch.form, stretch.literals))
        return number, True

    def __getitem__(self, number: int) -> Template:
        if number in self._present:
            self._touch(number)
        else:
            self._add(number, self._kept[number] if number in self._kept else self._loaded(number))
        return self._present[number]

    def nodes(self, occurrence: Occurrence, known: Mapping[int, Value]) -> list[Node]:
        """Returns the nodes of a stretch as they were recorded, given its values from outside as far as known."""
        template = self[occurrence.template]
        return nodes_of(template.form, occurrence, template.literals, self.ops.all, known)

    def close(self) -> None:
        """Gives the file up."""
        if self._disk is not None:
            self._disk.close()

    def _touch(self, number: int) -> None:
        self._present[number] = self._present.pop(number)

    def _add(self, number: int, template: Template) -> None:
        self._present[number] = template
        self._numbers.setdefault(template.form, number)
        self._size += template.size
        while self._disk is not None and self._size > IN_MEMORY and len(self._present) > 1:
            self._put_away(next(iter(self._present)), self._disk)

    def _put_away(self, number: int, disk: DiskBytes) -> None:
        template = self._present.pop(number)
        self._size -= template.size
        if self._numbers.get(template.form) == number:
            del self._numbers[template.form]
        if number in self._kept:
            return
        try:
            if self._places[number] == _NOWHERE:
                data = pickle.dumps((template.form, [literal.array for literal in template.literals]))
                self._places[number] = disk.add(data)
            if template.is_changed:
                self._variants[number] = disk.add(pickle.dumps(template.variants))
        except (pickle.PicklingError, AttributeError, TypeError):
            self._kept[number] = template

    def _loaded(self, number: int) -> Template:
        assert self._disk is not None
        form, arrays = pickle.loads(self._disk.read(self._places[number]))  # noqa: S301 - written by this process
        variants = self._disk.read(self._variants[number]) if self._variants[number] != _NOWHERE else None
        known = {} if variants is None else pickle.loads(variants)  # noqa: S301 - likewise
        return Template(form, tuple(map(Literal, arrays)), known)
