"""Table of axes of a bundle: how its tensors lie on a mesh of devices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compile_hlo.directions import Signature
from lang_core import Axes, ConfigError, DescriptionError, InputError, MeshShape, TensorSpec, near_names


@dataclass(frozen=True, slots=True)
class MeshTable:
    """Mesh that a bundle was exported for, and the axes that cut its parameters.

    Those of arguments and results stand with them (``LoweredArgument.axes``).

    Attributes:
        axes: the mesh.
        parameters: per path the axis that cuts each dimension, None if nothing does.
    """

    axes: MeshShape
    parameters: dict[str, Axes]

    def fields(self) -> dict[str, Any]:
        """Returns the table as JSON values."""
        return {"axes": self.axes.sizes, "parameters": {path: list(axes) for path, axes in self.parameters.items()}}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "MeshTable":
        """Reads the table.

        Raises:
            TypeError: a field is damaged; also KeyError or TapelineError.
        """
        parameters = {path: tuple(axes) for path, axes in fields["parameters"].items()}
        return MeshTable(MeshShape.of(fields["axes"]), parameters)


def check_table(
    table: MeshTable | None, entry_points: Sequence[Signature], parameters: Mapping[str, Mapping[str, Any]]
) -> None:
    """Refuses a table that does not fit the tensors of its bundle.

    Raises:
        DescriptionError: tensors have axes in a bundle without a mesh, or lack them in one with a mesh; parameters are
            others than the bundle's; or axes do not divide a tensor.
    """
    if table is None:
        for what, _, axes in _signed(entry_points):
            if axes is not None:
                raise DescriptionError(f"{what} has axes {list(axes)}, and the description has no mesh")
        return
    for path in sorted({*table.parameters} ^ {*parameters}):
        where = "mesh" if path in table.parameters else "parameters"
        hint = near_names(path, {*table.parameters, *parameters} - {path})
        raise DescriptionError(f"mesh: parameter {path!r} is listed in {where} alone{hint}")
    for what, shape, axes in _tensors(table, entry_points, parameters):
        if axes is None:
            raise DescriptionError(f"{what} has no axes, and the description has a mesh")
        _check_divides(table.axes, what, shape, axes)


def table_on(
    table: MeshTable | None,
    mesh: MeshShape,
    entry_points: Sequence[Signature],
    parameters: Mapping[str, Mapping[str, Any]],
) -> MeshTable:
    """Returns the table for a mesh of other sizes of the same axes.

    Args:
        table: the bundle's; None if it was exported without a mesh.
        mesh: the mesh to run on.
        entry_points: signatures of the bundle.
        parameters: dtype and shape of its weights.

    Raises:
        InputError: the bundle lacks a table, the table lacks an axis of the mesh, or a size does not divide a tensor.
    """
    if table is None:
        raise InputError(
            f"mesh={mesh}: the bundle was exported without a mesh, so it does not say how its tensors are cut; export "
            f"it with mesh={mesh}"
        )
    for axis, size in mesh:
        if size > 1 and axis not in table.axes.names:
            raise InputError(
                f"mesh={mesh}: the bundle was exported with mesh={table.axes}, which has no axis {axis!r}; export it "
                f"with mesh={mesh}"
            )
    for what, shape, axes in _tensors(table, entry_points, parameters):
        try:
            mesh.local_shape(shape, axes or (None,) * len(shape))
        except ConfigError as error:
            raise InputError(f"mesh={mesh}: {what}: {error}; or export the bundle with mesh={mesh}") from None
    return MeshTable(mesh, table.parameters)


def _signed(entry_points: Sequence[Signature]) -> Iterator[tuple[str, tuple[int, ...], Axes | None]]:
    """Yields name, shape and axes of the tensors among arguments and results."""
    for signature in entry_points:
        for argument in signature.arguments:
            if argument.kind == "tensor":
                yield f"entry point {signature.name!r}: argument {argument.name!r}", argument.spec.shape, argument.axes
        for result in signature.results:
            yield f"entry point {signature.name!r}: result {result.name!r}", result.spec.shape, result.axes


def _tensors(
    table: MeshTable, entry_points: Sequence[Signature], parameters: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, tuple[int, ...], Axes | None]]:
    for path, axes in table.parameters.items():
        yield f"parameter {path!r}", TensorSpec(tuple(parameters[path]["shape"]), parameters[path]["dtype"]).shape, axes
    yield from _signed(entry_points)


def _check_divides(mesh: MeshShape, what: str, shape: Sequence[int], axes: Axes) -> None:
    for axis in axes:
        if axis is not None and mesh.axis_of(axis) not in mesh.names:
            raise DescriptionError(f"{what}: axis {axis!r} not found in the mesh; available: {', '.join(mesh.names)}")
    try:
        mesh.local_shape(shape, axes)
    except ConfigError as error:
        raise DescriptionError(f"{what}: {error}") from None
