"""Count: the work of one call of an entry point on one device of a mesh, of its recording."""

from collections.abc import Callable
from contextlib import closing
from typing import Final, NamedTuple

from compile_dag import record
from compile_hlo.passes import Subexpressions, needed_nodes
from compile_hlo.streaming import PlannedStretch, RecordedFunction, StreamingPlan
from lang_core import Axes, EntryPoint, MeshShape, TensorSpec
from tapeline.analysis.counting import _product_rules as _product_rules  # its rules
from tapeline.analysis.counting._grid import DeviceGrid, Layout
from tapeline.analysis.counting._walk import ParameterAxes, Tensor, Walk
from tapeline.analysis.counting._work import Work

TensorAxes = Callable[[str, TensorSpec], Axes]
"""Axes of a mesh by the name and spec of a tensor."""
_MEMO: Final = 64


class _Counted(NamedTuple):
    """Count of a stretch.

    Attributes:
        work: its work.
        results: its live results.
        needs: layouts that it needs of values from around it, by their place, and of its live results, by theirs.
    """

    work: Work
    results: tuple[Tensor, ...]
    needs: tuple[dict[int, Layout], dict[int, Layout]]


class CountedWork(NamedTuple):
    """Work of an entry point.

    Attributes:
        work: of one call, on one device.
        parameters: specs of the weights that it reads, by path.
    """

    work: Work
    parameters: dict[str, TensorSpec]


def count_work(
    entry_point: EntryPoint,
    mesh: MeshShape,
    parameter_axes: ParameterAxes,
    tensor_axes: TensorAxes,
) -> CountedWork:
    """Records an entry point, and counts the work of one call of it on one device of a mesh, without reading weights.

    The recording is streamed like a lowering, and equal parts (layers) are counted once: memory does not grow with
    the model. An op is cut like its largest operand; devices exchange the other parts. A greatest number of bytes
    of activations takes elementwise ops as fused, and scores of attention over a cache as never written.

    Args:
        entry_point: entry point to count.
        mesh: the devices.
        parameter_axes: returns the axes of a parameter by path and stored spec.
        tensor_axes: returns the axes of an argument or a result by name and spec.
    """
    names = [argument.name for argument in entry_point.arguments]
    specs = [argument.spec for argument in entry_point.arguments]
    with RecordedFunction(streaming=True) as sink:
        recorded = record(entry_point.fn, *specs, input_names=names, name=entry_point.name, sink=sink)
        with closing(StreamingPlan(recorded)) as plan:
            counter = _Counter(recorded, DeviceGrid(mesh), parameter_axes)
            donated = {argument.name for argument in entry_point.arguments if argument.alias_result is not None}
            counter.begin(tensor_axes, donated)
            for stretch in plan:
                counter.stretch(stretch)
            counter.end(tensor_axes)
            return CountedWork(counter.work, dict(plan.parameters()))


class _Counter:
    """Counts stretch by stretch; equal ones once."""

    def __init__(self, recorded: RecordedFunction, grid: DeviceGrid, parameter_axes: ParameterAxes) -> None:
        self._recorded = recorded
        self._grid = grid
        self._parameter_axes = parameter_axes
        self._tensors: dict[int, Tensor] = {}
        self._needs: dict[int, Layout] = {}
        self._memo: dict[object, _Counted] = {}
        self.work = Work()

    def begin(self, axes: TensorAxes, donated: set[str]) -> None:
        """Takes the arguments."""
        for name, value in self._recorded.inputs.items():
            layout = self._grid.layout(axes(name, value.spec))
            size = self._grid.local_bytes(value.spec, layout)
            self._tensors[value.number] = Tensor(layout, size, 0, stored=name in donated)

    def stretch(self, stretch: PlannedStretch) -> None:
        """Takes a stretch."""
        occurrence, plan, variant = stretch
        if variant is None:
            return
        read = tuple(self._tensors[occurrence.outside[place]] for place in variant.reads)
        weights = tuple(self._parameter_axes(occurrence.parameters[i], spec) for i, spec in variant.parameters)
        dying = set(plan.last_uses)
        ends = tuple(place for place in variant.reads if occurrence.outside[place] in dying)
        key = occurrence.template, plan.live, read, ends, weights
        counted = self._memo.get(key)
        if counted is None:
            if len(self._memo) >= _MEMO:
                self._memo.clear()
            counted = self._memo[key] = self._count(stretch)
        alive = sum(tensor.owned for number, tensor in self._tensors.items() if number not in dying)
        self.work.activation_bytes = max(self.work.activation_bytes, alive + counted.work.activation_bytes)
        self.work.add(counted.work)
        for place, tensor in zip(plan.live, counted.results, strict=True):
            self._tensors[occurrence.first + place] = tensor
        outside, own = counted.needs
        self._needs.update({occurrence.outside[place]: layout for place, layout in outside.items()})
        self._needs.update({occurrence.first + place: layout for place, layout in own.items()})
        for number in plan.last_uses:
            del self._tensors[number]
            self._needs.pop(number, None)

    def _count(self, stretch: PlannedStretch) -> _Counted:
        occurrence, plan, _ = stretch
        nodes = self._recorded.templates.nodes(occurrence, {})
        wanted = [occurrence.first + place for place in plan.live]
        values = {value.number: value for node in nodes for value in node.results}
        merging = Subexpressions()
        merged = merging.merged(needed_nodes(nodes, set(wanted)))
        firsts = [merging.first(values[number]).number for number in wanted]
        walk = Walk(self._grid, self._parameter_axes, dict(self._tensors))
        walk.nodes(merged, set(firsts), frozenset(plan.last_uses))
        outside = {i: walk.needs[number] for i, number in enumerate(occurrence.outside) if number in walk.needs}
        own = {place: walk.needs[n] for place, n in zip(plan.live, firsts, strict=True) if n in walk.needs}
        return _Counted(walk.work, tuple(walk.tensors[number] for number in firsts), (outside, own))

    def end(self, axes: TensorAxes) -> None:
        """Brings the results into their layouts."""
        walk = Walk(self._grid, self._parameter_axes, self._tensors)
        walk.needs = self._needs
        for name, value in self._recorded.outputs.items():
            layout = self._grid.layout(axes(name, value.spec))
            walk.wanted(value, layout, name)
        self.work.add(walk.work)
