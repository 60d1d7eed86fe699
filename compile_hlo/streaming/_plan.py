"""Plan of a lowering: which results of which stretch are needed, found backward from the outputs.

The sweep reads a recording's stretches from the last to the first. The values that later stretches read are live after
a stretch; they determine the necessary nodes of the stretch, and these determine the values that it reads. So the live
values are those that pruning the whole graph finds, including dead blocks and dead results of live blocks.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from compile_dag import Node, regions_of
from compile_hlo.directions import Event, FunctionFlow, LoweredArgument, StretchFlow, StretchUses
from compile_hlo.emit import ParameterTable
from compile_hlo.passes import needed_nodes
from compile_hlo.streaming._form import Occurrence
from compile_hlo.streaming._journal import DiskJournal, SegmentJournal
from compile_hlo.streaming._record import RecordedFunction
from compile_hlo.streaming._templates import TemplateUses, Variant
from lang_core import Argument, GraphError, TensorSpec


class StretchPlan(NamedTuple):
    """Part of a plan for one stretch.

    Attributes:
        live: places of the results that later stretches, or the outputs, need.
        last_uses: numbers of the values that later stretches do not need.
    """

    live: tuple[int, ...]
    last_uses: tuple[int, ...]


class PlannedStretch(NamedTuple):
    """Stretch with its plan.

    Attributes:
        occurrence: stretch.
        plan: its live part.
        variant: necessary part of its template; None if nothing is.
    """

    occurrence: Occurrence
    plan: StretchPlan
    variant: Variant | None


class StreamingPlan:
    """Plan of a recorded function.

    Args:
        recorded: function.
    """

    def __init__(self, recorded: RecordedFunction) -> None:
        self._recorded = recorded
        # In the order in which the sweep finds them: from the last stretch to the first.
        self._plans: SegmentJournal = DiskJournal() if isinstance(recorded.occurrences, DiskJournal) else []
        self._sweep()

    def __iter__(self) -> Iterator[PlannedStretch]:
        """Yields the stretches in order."""
        for record, planned in zip(self._recorded.occurrences, reversed(self._plans), strict=True):
            occurrence, plan = Occurrence(*record), StretchPlan(*planned)
            yield PlannedStretch(occurrence, plan, self._variant(occurrence, plan.live))

    def close(self) -> None:
        """Deletes its files."""
        if isinstance(self._plans, DiskJournal):
            self._plans.close()

    def directions(self, arguments: Sequence[Argument]) -> tuple[LoweredArgument, ...]:
        """Returns the directions of the function's tensor arguments, before common subexpressions are merged."""
        flow = FunctionFlow(arguments, self._recorded.inputs.values())
        for occurrence, plan, variant in self:
            if variant is not None:
                flow.stretch(uses_of(variant.uses, occurrence, occurrence.outside))
                flow.forget(plan.last_uses)
        return flow.end(self._recorded.outputs)

    def parameters(self) -> ParameterTable:
        """Returns the parameters that the function needs."""
        table = ParameterTable()
        for occurrence, _, variant in self:
            for number, spec in () if variant is None else variant.parameters:
                table.add(occurrence.parameters[number], spec)
        return table

    def _sweep(self) -> None:
        recorded = self._recorded
        inputs = {value.number for value in recorded.inputs.values()}
        live = {value.number for value in recorded.outputs.values()} - inputs
        latest = [-number for number in live]
        heapq.heapify(latest)
        for record in reversed(recorded.occurrences):
            occurrence = Occurrence(*record)
            places: list[int] = []
            while latest and -latest[0] >= occurrence.first:
                number = -heapq.heappop(latest)
                live.remove(number)
                places.append(number - occurrence.first)
            variant = self._variant(occurrence, tuple(places))
            read = () if variant is None else [occurrence.outside[place] for place in variant.reads]
            last_uses = [number for number in read if number not in live and number not in inputs]
            live.update(last_uses)
            for number in last_uses:
                heapq.heappush(latest, -number)
            self._plans.append(StretchPlan(tuple(places), tuple(last_uses)))
        if live:
            raise _unknown(recorded.name)

    def _variant(self, occurrence: Occurrence, live: tuple[int, ...]) -> Variant | None:
        template = self._recorded.templates[occurrence.template]
        if not live and not template.form.has_tags:
            return None
        variant = template.variants.get(live)
        if variant is None:
            nodes = self._recorded.templates.nodes(occurrence, {})
            variant = template.variants[live] = _variant_of(self._recorded.name, nodes, occurrence, live)
            template.is_changed = True
        return variant


def _variant_of(name: str, nodes: list[Node], occurrence: Occurrence, live: tuple[int, ...]) -> Variant:
    """Finds the necessary part of a stretch."""
    made = {value.number: value for node in nodes for value in node.results}
    numbers = [occurrence.first + place for place in live]
    if not made.keys() >= set(numbers):
        raise _unknown(name)
    needed = set(numbers)
    kept = needed_nodes(nodes, needed)
    uses = StretchFlow(kept).uses(kept, [made[number] for number in numbers])
    paths = {path: number for number, path in enumerate(occurrence.parameters)}
    return Variant(
        tuple([place for place, number in enumerate(occurrence.outside) if number in needed]),
        len(kept),
        tuple([(paths[path], spec) for path, spec in _parameters(kept)]),
        uses_form(uses, occurrence, {number: place for place, number in enumerate(occurrence.outside)}),
    )


def _parameters(nodes: Iterable[Node]) -> Iterator[tuple[str, TensorSpec]]:
    """Yields path and spec of each parameter that nodes or their regions read."""
    for node in nodes:
        if node.op.name == "parameter":
            yield node.attributes
        for region in regions_of(node):
            yield from _parameters(region.nodes)


def uses_form(uses: StretchUses, occurrence: Occurrence, places: dict[int, int]) -> TemplateUses:
    """Returns uses by places.

    Args:
        uses: uses by numbers.
        occurrence: stretch.
        places: places in ``Occurrence.outside`` by number; other values cannot be an argument's buffer.
    """
    paths = {path: number for number, path in enumerate(occurrence.paths)}
    return TemplateUses(
        tuple([places[number] for number in uses.reads if number in places]),
        tuple(
            [(event.kind, places[event.root], at, paths[at.path]) for event, at in uses.events if event.root in places]
        ),
        tuple(
            [
                (number - occurrence.first, given)
                for number, origins in uses.origins
                if (given := tuple([(places[root], how) for root, how in origins.items() if root in places]))
            ]
        ),
    )


def uses_of(uses: TemplateUses, occurrence: Occurrence, outside: Sequence[int]) -> StretchUses:
    """Returns uses by numbers.

    Args:
        uses: uses by places.
        occurrence: stretch.
        outside: number of the value at each place.
    """
    return StretchUses(
        tuple([outside[place] for place in uses.reads]),
        tuple(
            [(Event(kind, outside[place]), at.under(occurrence.paths[path])) for kind, place, at, path in uses.events]
        ),
        tuple(
            [
                (occurrence.first + result, {outside[place]: how for place, how in origins})
                for result, origins in uses.origins
            ]
        ),
    )


def _unknown(name: str) -> GraphError:
    return GraphError(
        f"graph {name!r} uses a value that is none of its inputs and of no earlier node: record it in this graph, or "
        f"make it an input"
    )
