"""Bundles in JAX; importing this module loads it."""

from run_jax.sessions import Session, single
from tapeline.bundle import Bundle
from tapeline.engines._open import Place


def open_bundle(bundle: Bundle, place: Place) -> Session:
    """Opens a bundle's portable module with the weights of its archive; see ``open_session``."""
    return Session(
        bundle.artifact(),
        signatures=bundle.config.entry_points,
        weights=bundle.weights(),
        parameters=tuple(bundle.config.parameters),
        partitions=single(place.device),
    )
