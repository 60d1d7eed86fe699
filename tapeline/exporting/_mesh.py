"""Mesh of an export: the axes that cut its tensors, and the form of its portable text."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from compile_hlo import LoweredModule
from compile_hlo.directions import LoweredArgument, Signature
from lang_core import Axes, EntryPoint, MeshShape, Module
from tapeline.bundle import MeshTable
from tapeline.cli import Progress, ProgressEvent
from transformer_core.sharding import Sharding, argument_axes, result_axes, sharding

_BATCHED: Final = "1.1.0"  # the first version of StableHLO whose gather and scatter batch over dimensions


@dataclasses.dataclass(frozen=True, slots=True)
class ExportMesh:
    """Mesh of an export.

    Attributes:
        shape: axes and sizes.
        sharding: axes of the parameters.
        entry_points: functions of the bundle.
        batch: B.
    """

    shape: MeshShape
    sharding: Sharding
    entry_points: tuple[EntryPoint, ...]
    batch: int

    def table(self, lowered: LoweredModule) -> MeshTable:
        """Returns the table of the parameters that the module reads."""
        return MeshTable(self.shape, {path: self.sharding.parameters[path] for path in lowered.parameters()})

    def signature(self, signature: Signature) -> Signature:
        """Returns a signature with the axes of its tensors."""
        point = next(point for point in self.entry_points if point.name == signature.name)
        given = argument_axes(point, self.shape, self.batch)
        results = [(result.name, result.spec) for result in signature.results]
        made = result_axes(results, self.entry_points, self.shape, self.batch)
        return dataclasses.replace(
            signature,
            arguments=tuple(_cut(argument, given[argument.name]) for argument in signature.arguments),
            results=tuple(dataclasses.replace(result, axes=made[result.name]) for result in signature.results),
        )

    def axes_by_function(self, lowered: LoweredModule) -> dict[str, tuple[list[Axes], list[Axes]]]:
        """Returns the axes of the arguments, weights last, and results of each function of the portable module.

        An axis along which one device stands cuts nothing.
        """
        made: dict[str, tuple[list[Axes], list[Axes]]] = {}
        for function in lowered.functions:
            signature = self.signature(function.signature)
            read = [self.sharding.parameters[path] for path in lowered.parameters() if path in function.parameters]
            given = [argument.axes or () for argument in signature.arguments]
            results = [result.axes or () for result in signature.results]
            made[function.name] = [*map(self._cutting, [*given, *read])], [*map(self._cutting, results)]
        return made

    def _cutting(self, axes: Axes) -> Axes:
        return tuple(None if self.shape.size_of(axis) == 1 else axis for axis in axes)

    def of_sequences(self, entry_points: Sequence[EntryPoint], batch: int) -> "ExportMesh":
        """Returns the mesh of the devices that compute some of the sequences: one along ``dp``.

        Args:
            entry_points: functions of so many sequences.
            batch: their number.
        """
        return ExportMesh(MeshShape.of({**self.shape.sizes, "dp": 1}), self.sharding, tuple(entry_points), batch)

    def facts(self) -> dict[str, Any]:
        """Returns the mesh's entries in the report."""
        return {"axes": self.shape.sizes, "notes": list(self.sharding.notes)}


def export_mesh(
    shape: MeshShape | None, model: Module, points: Sequence[EntryPoint], batch: int, progress: Progress
) -> ExportMesh | None:
    """Returns the mesh of an export, checked before any work; None if none is asked for.

    Raises:
        ConfigError: an axis does not divide the sizes that it cuts.
    """
    if shape is None:
        return None
    made = ExportMesh(shape, sharding(model, shape), tuple(points), batch)
    for point in points:
        argument_axes(point, shape, batch)
    for note in made.sharding.notes:
        progress(ProgressEvent(f"mesh {shape}: {note}"))
    return made


def portable_version(asked: str, mesh: ExportMesh | None) -> str:
    """Returns the oldest version of StableHLO that has to read the portable artifact.

    Caches with a position per row are written by scatters that batch over heads, because XLA would gather whole caches
    otherwise; the first version has none.
    """
    oldest = tuple(map(int, asked.split(".")))
    return asked if mesh is None else ".".join(map(str, max(oldest, tuple(map(int, _BATCHED.split("."))))))


def _cut(argument: LoweredArgument, axes: Axes) -> LoweredArgument:
    return argument if argument.kind == "scalar" else dataclasses.replace(argument, axes=axes)
