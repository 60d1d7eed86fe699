"""Bundles in JAX; importing this module loads it."""

from pathlib import Path

from lang_core import Axes
from run_jax import StableHloFunction
from run_jax.processes import leading
from run_jax.sessions import Partitions, Session, device_mesh, single
from tapeline.bundle import Bundle, table_on
from tapeline.engines import _protocol
from tapeline.engines._registry import Place


def open_bundle(bundle: Bundle, place: Place) -> _protocol.Session:
    """Opens a bundle on the devices of all ranks; see ``open_session``."""
    leader = leading()
    if leader is None:
        return open_on_rank(bundle, place)
    mesh = None if place.mesh is None else str(place.mesh)
    checkpoint = None if place.checkpoint is None else str(place.checkpoint)
    return leader.open({"bundle": str(bundle.path), "device": place.device, "mesh": mesh, "checkpoint": checkpoint})


def open_on_rank(bundle: Bundle, place: Place) -> Session:
    """Opens a bundle's portable module with the weights of its archive, for the devices of this process."""
    return Session(
        bundle.artifact(),
        signatures=bundle.config.entry_points,
        weights=bundle.weights(place.checkpoint),
        parameters=tuple(bundle.config.parameters),
        partitions=_partitions(bundle, place),
    )


def compiled_text(text: Path) -> StableHloFunction:
    """Returns the one public function of StableHLO text; see ``xla_function``."""
    return StableHloFunction(text)


def _partitions(bundle: Bundle, place: Place) -> Partitions:
    """Returns the devices, and what the bundle's table of axes says that each holds.

    Raises:
        InputError: the bundle has no table, or the mesh does not divide its tensors.
        DeviceError: there are fewer devices.
    """
    mesh, config = place.mesh, bundle.config
    if mesh is None or mesh.size == 1:
        return single(place.device)
    table = table_on(config.mesh, mesh, config.entry_points, config.parameters)
    values: dict[tuple[str, str], Axes] = {}
    for point in config.entry_points:
        for value in (*point.arguments, *point.results):
            if value.axes is not None:
                values[point.name, value.name] = value.axes
    return Partitions(device_mesh(mesh.sizes, place.device), table.parameters, values)
