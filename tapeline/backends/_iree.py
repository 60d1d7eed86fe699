"""Bundles in IREE."""

from run_iree import Session, target_of_device
from runtime.dump import Dumper
from tapeline.backends._registry import Place
from tapeline.bundle import Bundle, debug_executable_name, executable_name


def open_bundle(bundle: Bundle, place: Place) -> Session:
    """Opens a bundle on one device; see ``open_session``."""
    return bundle.session(place.name, trust_compiled=place.trust_compiled)


def open_dumped(bundle: Bundle, place: Place, dumper: Dumper) -> Session:
    """Opens a bundle such that the tensors of every call are dumped."""
    return bundle.session(place.name, dumper, trust_compiled=place.trust_compiled)


def dumped_module(bundle: Bundle, place: Place) -> str:
    """Returns the name of the file that runs if calls are dumped."""
    target = target_of_device(place.name)
    return executable_name(target) if bundle.config.debug is None else debug_executable_name(target)
