"""Opens a bundle in the engine that is asked for."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from lang_core import load_extra
from runtime import Session
from runtime.dump import Dumper
from tapeline.backends._registry import JAX, Place, engine_named
from tapeline.bundle import Bundle

XLA: Final = "xla-"
"""Beginning of the names of targets that XLA compiles for."""


def xla_function(text: Path) -> Callable[..., Sequence[np.ndarray]]:
    """Returns the one public function of StableHLO text, compiled by XLA: arrays of its shapes in and out.

    Raises:
        VerificationError: XLA refuses it.
        MissingPackageError: JAX is not installed.
    """
    return load_extra(JAX, "jax", "compiling by XLA").compiled_text(text)


def open_session(bundle: Bundle, place: Place, dumper: Dumper | None = None) -> Session:
    """Opens a bundle; the caller closes the session.

    Args:
        bundle: the bundle.
        place: engine and devices.
        dumper: receiver of the tensors of every call.

    Raises:
        DescriptionError: kernel_config.json and the module contradict one another, or a file is not the one that was
            exported.
        InputError: the bundle cannot run there, or the mesh does not divide it.
        DeviceError: the device is not available, or a file is damaged.
        MissingPackageError: the engine is JAX, and it is not installed.
    """
    engine = engine_named(place.engine)
    bundle.checks.check(place.verify)
    if dumper is None:
        return engine.open(bundle, place)
    return place.dumps().open(bundle, place, dumper)


def dumped_module(bundle: Bundle, place: Place) -> str:
    """Returns the name of the bundle's file that runs if calls are dumped.

    Raises:
        InputError: the engine cannot dump calls.
    """
    return place.dumps().module(bundle, place)


def open_on_rank(bundle: Bundle, place: Place) -> Session:
    """Opens a bundle on this rank's part of the devices; each of several processes calls it."""
    return load_extra(JAX, "jax", "engine=jax").open_on_rank(bundle, place)
