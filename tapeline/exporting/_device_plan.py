"""Plan of an export's entry points on the devices of a mesh."""

from lang_core import Axes, EntryPoint, InputError, MeshShape, TensorSpec
from tapeline.analysis.counting import TensorAxes
from tapeline.analysis.planning import DevicePlan, Hardware, MeshLayout, plan
from tapeline.exporting._load import Export, entry_points_of
from transformer_core.sharding import argument_axes, cache_axes, result_axes, sharding


def device_plan(export: Export, hardware: Hardware | None) -> DevicePlan:
    """Returns the plan of an export on its mesh, or on one device.

    Args:
        export: options of the export.
        hardware: figures of a device; None omits times.

    Raises:
        InputError: the mesh fits neither the model nor the hardware, or a server's bundle is planned.
    """
    options = export.options
    if options.slots is not None:
        raise InputError(
            f"slots={options.slots} with a plan of devices: its calls work on some of the rows: plan "
            f"batch={options.slots} without `slots`, whose caches and weights are the same"
        )
    mesh = options.mesh_shape or MeshShape.of({"tp": 1})
    made = sharding(export.model, mesh) if export.mesh is None else export.mesh.sharding

    def tensors(points: tuple[EntryPoint, ...], batch: int) -> TensorAxes:
        kept = cache_axes(points, mesh)
        for point in points:
            argument_axes(point, mesh, batch)  # which checks that dp divides the batch

        def axes(name: str, spec: TensorSpec) -> Axes:
            return kept.get(name) or result_axes([(name, spec)], (), mesh, batch)[name]

        return axes

    layout = MeshLayout(mesh, made.parameters, tensors, made.notes)
    return plan(lambda batch: entry_points_of(export, batch), options.batch, layout, hardware)
