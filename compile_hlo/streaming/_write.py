"""Writing: each stretch is pruned, merged and written; one that is the same as an earlier one repeats its call."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from compile_dag import Node, Stretch, TagInfo, Value, has_tags, regions_of, tags_of
from compile_hlo.directions import SHARED, Reach, StretchOverlaps, Update
from compile_hlo.emit import LEAVES, BlockCall, FunctionWriter, WrittenStretch
from compile_hlo.passes import Subexpressions, needed_nodes
from compile_hlo.streaming._form import Occurrence
from compile_hlo.streaming._plan import PlannedStretch, uses_form, uses_of
from compile_hlo.streaming._rebuild import made_again
from compile_hlo.streaming._record import RecordedFunction
from compile_hlo.streaming._templates import Overlaps, Repeat, ResultForm, Variant


class StretchWriter:
    """Writes the stretches of a function in order.

    Attributes:
        emitted: number of nodes that were written.
        needed: number of nodes that outputs or tags need.
        tags: tags that were written, in order.
    """

    def __init__(self, recorded: RecordedFunction, function: FunctionWriter) -> None:
        self._recorded = recorded
        self._function = function
        self._subexpressions = Subexpressions()
        self._values = {value.number: value for value in recorded.inputs.values()}  # and live results
        self._stands_for: dict[int, int] = {}  # by the first value's number: for how many live results
        self.emitted = 0
        self.needed = 0
        self.tags: list[TagInfo] = []

    def write(self, stretch: PlannedStretch) -> None:
        """Writes the necessary part of a stretch, and forgets values that are not used any more."""
        occurrence, plan, variant = stretch
        if variant is None:
            return
        self.needed += variant.needed
        firsts = [self._first_outside(occurrence, place) for place in variant.reads]
        pattern = _pattern(firsts)
        repeat = variant.repeats.get(pattern)
        overlaps = None if repeat is None else _overlaps_of(repeat.overlaps, occurrence, self._firsts(occurrence))
        if repeat is None or overlaps is None or not self._is_same(repeat, overlaps, occurrence):
            self._write_nodes(occurrence, plan.live, variant, pattern)
        else:
            self._repeat(occurrence, repeat, overlaps)
        self._forget(plan.last_uses)

    def end(self) -> None:
        """Writes the function's end."""
        self._function.end([self._subexpressions.first(value) for value in self._recorded.outputs.values()])

    def _is_same(self, repeat: Repeat, overlaps: StretchOverlaps, occurrence: Occurrence) -> bool:
        """Returns whether the updates that overlap are those of the text that would be repeated."""
        if not overlaps.updates:
            return True
        overlapping = {number - occurrence.first for number in self._function.overlapping(overlaps)}
        return overlapping == repeat.overlaps.overlapping

    def _firsts(self, occurrence: Occurrence) -> list[int]:
        """Returns the numbers of the values that stand for those from outside."""
        return [
            self._subexpressions.first(self._values[number]).number if number in self._values else number
            for number in occurrence.outside
        ]

    def _first_outside(self, occurrence: Occurrence, place: int) -> Value:
        return self._subexpressions.first(self._values[occurrence.outside[place]])

    def _write_nodes(
        self, occurrence: Occurrence, live: tuple[int, ...], variant: Variant, pattern: tuple[int, ...]
    ) -> None:
        nodes = self._recorded.templates.nodes(occurrence, self._values)
        results = {value.number: value for node in nodes for value in node.results}
        wanted = [results[occurrence.first + place] for place in live]
        merged = self._subexpressions.merged(needed_nodes(nodes, {value.number for value in wanted}))
        self.emitted += len(merged)
        self.tags += tags_of(filter(has_tags, merged))
        firsts = [self._subexpressions.first(value) for value in wanted]
        standing = {value.number for value in firsts}
        written = self._function.stretch(
            merged, [value for node in merged for value in node.results if value.number in standing]
        )
        self._keep(wanted)
        gone = [
            value for value in results.values() if value.number not in standing and value.number not in self._values
        ]
        self._function.forget(gone)
        self._subexpressions.forget(gone)
        self._function.forget(_inside(nodes))
        repeat = self._repeat_of(occurrence, variant, wanted, firsts, written, len(merged))
        if repeat is not None:
            variant.repeats[pattern] = repeat

    def _keep(self, live: Iterable[Value]) -> None:
        """Remembers live results."""
        for value in live:
            self._values[value.number] = value
            first = self._subexpressions.first(value).number
            self._stands_for[first] = self._stands_for.get(first, 0) + 1

    def _forget(self, last_uses: Iterable[int]) -> None:
        """Forgets values after their last use, and their replacements without other uses."""
        gone: list[Value] = []
        for number in last_uses:
            value = self._values.pop(number)
            first = self._subexpressions.first(value)
            self._stands_for[first.number] -= 1
            if not self._stands_for[first.number]:
                del self._stands_for[first.number]
                gone.append(first)
            if value is not first:
                gone.append(value)
        self._function.forget(gone)
        self._subexpressions.forget(gone)

    def _repeat_of(
        self,
        occurrence: Occurrence,
        variant: Variant,
        wanted: list[Value],
        firsts: list[Value],
        written: WrittenStretch,
        emitted: int,
    ) -> Repeat | None:
        """Returns the text that other occurrences can repeat.

        None if the text is not a call, or names observed values.
        """
        call = written.call
        form = self._recorded.templates[occurrence.template].form
        if call is None or form.has_tags or any(value.op_name in LEAVES for value in firsts):
            return None
        places = {self._first_outside(occurrence, place).number: place for place in reversed(variant.reads)}
        parameters = {path: number for number, path in enumerate(occurrence.parameters)}
        passed: list[int | str | tuple[int]] = []
        for entry in call.passed:
            if isinstance(entry, str):
                passed.append((parameters[entry],) if entry in parameters else entry)
            elif entry.number in places:
                passed.append(places[entry.number])
            else:
                return None
        overlaps = _overlaps_form(written, occurrence, places)
        if overlaps is None:
            return None
        paths = {path: number for number, path in enumerate(occurrence.paths)}

        def form_of(value: Value) -> ResultForm:
            return ResultForm(value.number - occurrence.first, value.spec, value.op_name, paths[value.path], value.line)

        return Repeat(
            call.function,
            tuple(passed),
            call.specs,
            call.loads,
            call.updated,
            tuple(map(form_of, call.results)),
            tuple(
                [(form_of(value), first.number - occurrence.first) for value, first in zip(wanted, firsts, strict=True)]
            ),
            uses_form(written.uses, occurrence, places),
            overlaps,
            emitted,
        )

    def _repeat(self, occurrence: Occurrence, repeat: Repeat, overlaps: StretchOverlaps) -> None:
        results = {result.place: _made_again(result, occurrence) for result in repeat.results}
        passed: list[Value | str] = []
        for entry in repeat.passed:
            if isinstance(entry, int):
                passed.append(self._first_outside(occurrence, entry))
            else:
                passed.append(entry if isinstance(entry, str) else occurrence.parameters[entry[0]])
        call = BlockCall(
            repeat.function,
            occurrence.block,
            tuple(passed),
            repeat.specs,
            repeat.loads,
            repeat.updated,
            tuple(results.values()),
        )
        uses = uses_of(repeat.uses, occurrence, self._firsts(occurrence))
        self._function.repeat(call, uses, overlaps, Stretch(occurrence.block, occurrence.stretch))
        self.emitted += repeat.emitted
        for form, first in repeat.live:
            value = results.get(form.place)
            if value is None:
                value = _made_again(form, occurrence)
            if first != form.place:
                self._subexpressions.replace(value, results[first])
            self._keep([value])


def _made_again(result: ResultForm, occurrence: Occurrence) -> Value:
    number, path = occurrence.first + result.place, occurrence.paths[result.path]
    return made_again(result.spec, number, result.op_name, path, result.line)


def _overlaps_form(written: WrittenStretch, occurrence: Occurrence, places: Mapping[int, int]) -> Overlaps | None:
    """Returns the updates of a stretch by distances and places; None if a root is neither inside nor among these."""
    first = occurrence.first

    def form(roots: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted([_root_form(root, first, places) for root in roots]))

    updates, results = written.overlaps
    try:
        return Overlaps(
            tuple([(number - first, form(target), form(read)) for number, target, read in updates]),
            tuple([(number - first, tuple(map(form, reach))) for number, reach in results]),
            frozenset([number - first for number in written.overlapping]),
        )
    except KeyError:
        return None


def _root_form(root: int, first: int, places: Mapping[int, int]) -> int:
    if root >= SHARED:
        return root
    return root - first if root >= first else ~places[root]


def _overlaps_of(overlaps: Overlaps, occurrence: Occurrence, outside: Sequence[int]) -> StretchOverlaps:
    """Returns updates by numbers; the inverse of ``_overlaps_form`` for another occurrence."""
    first = occurrence.first

    def roots(form: Iterable[int]) -> frozenset[int]:
        return frozenset([root if root >= SHARED else first + root if root >= 0 else outside[~root] for root in form])

    return StretchOverlaps(
        tuple([Update(first + number, roots(target), roots(read)) for number, target, read in overlaps.updates]),
        tuple([(first + number, Reach(*map(roots, reach))) for number, reach in overlaps.results]),
    )


def _pattern(outside: Iterable[Value]) -> tuple[int, ...]:
    """Returns the inputs of a stretch's text beside its form: which values from outside are equal, or leaves."""
    places: dict[int, int] = {}
    return tuple(
        [
            value.number if value.op_name in LEAVES else places.setdefault(value.number, -1 - len(places))
            for value in outside
        ]
    )


def _inside(nodes: Iterable[Node]) -> Iterator[Value]:
    """Yields the values of the nodes' regions; none outlives its node."""
    for node in nodes:
        for region in regions_of(node):
            yield from region.inputs.values()
            yield from (value for inner in region.nodes for value in inner.results)
            yield from _inside(region.nodes)
