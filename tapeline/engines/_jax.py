"""Bundles in JAX; importing this module loads it."""

from run_jax.processes import leading
from run_jax.sessions import Session, single
from tapeline.bundle import Bundle
from tapeline.engines import _protocol
from tapeline.engines._open import Place


def open_bundle(bundle: Bundle, place: Place) -> _protocol.Session:
    """Opens a bundle on the devices of all ranks; see ``open_session``."""
    leader = leading()
    if leader is None:
        return open_on_rank(bundle, place)
    mesh = None if place.mesh is None else str(place.mesh)
    return leader.open({"bundle": str(bundle.path.resolve()), "device": place.device, "mesh": mesh})


def open_on_rank(bundle: Bundle, place: Place) -> Session:
    """Opens a bundle's portable module with the weights of its archive, for the devices of this process."""
    return Session(
        bundle.artifact(),
        signatures=bundle.config.entry_points,
        weights=bundle.weights(),
        parameters=tuple(bundle.config.parameters),
        partitions=single(place.device),
    )
