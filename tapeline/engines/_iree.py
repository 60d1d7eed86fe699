"""Bundles in IREE."""

from run_iree import Session
from tapeline.bundle import Bundle
from tapeline.engines._registry import Place


def open_bundle(bundle: Bundle, place: Place) -> Session:
    """Opens a bundle on one device; see ``open_session``."""
    return bundle.session(place.name)
