"""Bundles in JAX; importing this module loads it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import runtime
from compile_hlo import traced_name
from compile_hlo.directions import Signature
from lang_core import Axes, InputError
from run_jax import StableHloFunction
from run_jax.processes import leading
from run_jax.sessions import Partitions, Session, device_mesh, single
from runtime.dump import Dumper
from tapeline.backends._observer import CallDumps
from tapeline.backends._registry import Place
from tapeline.bundle import ARTIFACT, DEBUG_MODULE, Bundle, SecondModule, table_on, tolerance_of


def open_bundle(bundle: Bundle, place: Place) -> runtime.Session:
    """Opens a bundle on the devices of all ranks; see ``open_session``."""
    leader = leading()
    if leader is None:
        return open_on_rank(bundle, place)
    mesh = None if place.mesh is None else str(place.mesh)
    checkpoint = None if place.checkpoint is None else str(place.checkpoint)
    return leader.open(
        {
            "bundle": str(bundle.path),
            "device": place.device,
            "mesh": mesh,
            "checkpoint": checkpoint,
            "verify": place.verify,
        }
    )


def open_on_rank(bundle: Bundle, place: Place, observer: CallDumps | None = None) -> runtime.Session:
    """Opens a bundle's portable module with the weights of its archive, for the devices of this process."""
    return Session(
        bundle.artifact(),
        signatures=bundle.config.entry_points,
        weights=bundle.weights(place.checkpoint),
        parameters=tuple(bundle.config.parameters),
        partitions=_partitions(bundle, place),
        observer=observer,
        guard=bundle.checks.guard() if place.checkpoint is None else None,
    )


def dumped_module(bundle: Bundle, place: Place) -> str:
    """Returns the name of the file that runs if calls are dumped."""
    del place
    return ARTIFACT if bundle.config.debug is None else DEBUG_MODULE


def open_dumped(bundle: Bundle, place: Place, dumper: Dumper) -> runtime.Session:
    """Opens the debug module, if there is one, with the modules that must agree with it.

    Raises:
        InputError: there are several ranks.
    """
    if leading() is not None:
        raise InputError("`dump` shows tensors of one process, and there are several ranks: run it in one process")
    if bundle.config.debug is None:
        return open_on_rank(bundle, place, CallDumps(dumper, ARTIFACT))
    text, rows, tolerance = bundle.traced_text(), dumper.writer.agreement, tolerance_of(bundle.config.model)
    plain = [replace(point, parameters=None) for point in bundle.config.entry_points]
    companions = [SecondModule(ARTIFACT, open_on_rank(bundle, place), rows, tolerance)]
    if any(dumper.sites.values()):
        kernels = CallDumps(dumper.kernels(), DEBUG_MODULE)
        session = _open_traced(bundle, place, text, kernels, [_traced(point) for point in plain])
        companions.append(SecondModule(DEBUG_MODULE, session, rows, tolerance, function=traced_name, always=True))
    return _open_traced(bundle, place, text, CallDumps(dumper, DEBUG_MODULE, companions), plain)


def _open_traced(
    bundle: Bundle, place: Place, text: str, observer: CallDumps, signatures: Sequence[Signature]
) -> runtime.Session:
    return Session(
        bundle.path / DEBUG_MODULE,
        signatures=signatures,
        weights=bundle.weights(place.checkpoint),
        parameters=tuple(bundle.config.parameters),
        partitions=_partitions(bundle, place),
        observer=observer,
        traced_text=text,
        guard=bundle.checks.guard() if place.checkpoint is None else None,
    )


def _traced(point: Signature) -> Signature:
    """Returns the signature of an entry point with traces of kernels, which keeps its arguments."""
    return replace(point, name=traced_name(point.name))


def compiled_text(text: Path) -> StableHloFunction:
    """Returns the one public function of StableHLO text; see ``xla_function``."""
    return StableHloFunction(text)


def _partitions(bundle: Bundle, place: Place) -> Partitions:
    """Returns the devices, and their shards by the bundle's table of axes.

    Raises:
        InputError: the bundle lacks the table, or the mesh does not divide its tensors.
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
