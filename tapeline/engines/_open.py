"""Opens a bundle in the engine that is asked for."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from lang_core import InputError, MeshShape, checked_choices
from run_iree.dump import Dumper
from tapeline.bundle import Bundle
from tapeline.engines._protocol import Session

Engine = Literal["iree", "jax"]
"""Name of an engine."""

DEVICES: Final = {
    "iree": ("local-task", "local-sync", "vmvx", "vulkan", "cuda"),
    "jax": ("cpu", "cuda", "rocm", "tpu"),
}
"""Devices by engine; the first is the default of IREE, JAX chooses itself."""

XLA: Final = "xla-"
"""Beginning of the names of targets that XLA compiles for."""

_MODULES: Final = {"iree": "tapeline.engines._iree", "jax": "tapeline.engines._jax"}

ENGINES: Final = tuple(DEVICES)
"""Names of the engines."""


@checked_choices
@dataclass(frozen=True, slots=True)
class Place:
    """Engine and devices on which bundles run.

    Attributes:
        engine: ``iree``, which runs what export compiled; ``jax``, by which XLA compiles the bundle's portable module.
        device: name of the device, one of the engine's in ``DEVICES``; the engine's default where None.
        mesh: axes of devices over which the bundle is cut; one device where None.
        checkpoint: directory of the weights of a bundle that was exported without; see ``Bundle.weights``.

    Raises:
        InputError: the engine has no such device, or no meshes, or takes weights from an archive alone.
    """

    engine: Engine = "iree"
    device: str | None = None
    mesh: MeshShape | None = None
    checkpoint: Path | None = None

    def __post_init__(self) -> None:
        if self.device is not None and self.device not in DEVICES[self.engine]:
            others = [engine for engine in ENGINES if self.device in DEVICES[engine]]
            hint = f": with engine={others[0]} it is one" if others else ""
            raise InputError(
                f"device={self.device}: not a device of engine={self.engine}; available: "
                f"{', '.join(DEVICES[self.engine])}{hint}"
            )
        if self.mesh is not None and self.engine != "jax":
            raise InputError(f"mesh={self.mesh} goes with engine=jax: {self.engine} runs a bundle on one device")

        if self.checkpoint is not None and self.engine != "jax":
            raise InputError(
                f"checkpoint={self.checkpoint} goes with engine=jax: {self.engine} maps an archive: export with "
                f"weights=external"
            )

    @property
    def name(self) -> str:
        """Name of the device: what is asked for, or the first of the engine's."""
        return self.device or DEVICES[self.engine][0]

    def check_dumps(self) -> None:
        """Checks that calls can be dumped there.

        Raises:
            InputError: they cannot.
        """
        if self.engine != "iree":
            raise InputError(
                f"`dump` goes with engine=iree, whose debug module traces tensors; engine={self.engine} has no such "
                f"traces: compare names the first tensor that departs there"
            )


def xla_function(text: Path) -> Callable[..., Sequence[np.ndarray]]:
    """Returns the one public function of StableHLO text, compiled by XLA: arrays in, arrays out.

    Raises:
        VerificationError: XLA refuses it.
    """
    return importlib.import_module(_MODULES["jax"]).compiled_text(text)


def open_session(bundle: Bundle, place: Place, dumper: Dumper | None = None) -> Session:
    """Opens a bundle; the caller closes the session.

    Args:
        bundle: the bundle.
        place: engine and devices.
        dumper: receiver of the tensors of every call.

    Raises:
        DescriptionError: kernel_config.json and the module contradict one another.
        InputError: the bundle cannot run there, or the mesh does not divide it.
        DeviceError: the device is not available, or a file is damaged.
    """
    if dumper is not None:
        place.check_dumps()
        return bundle.session(place.name, dumper)
    return importlib.import_module(_MODULES[place.engine]).open_bundle(bundle, place)


def open_on_rank(bundle: Bundle, place: Place) -> Session:
    """Opens a bundle on this rank's part of the devices: what each of several processes does when one is told to."""
    return importlib.import_module(_MODULES["jax"]).open_on_rank(bundle, place)
