"""Registry of engines, and the places on which they run bundles."""

import functools
import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final

from lang_core import (
    ChoiceError,
    ConfigError,
    InputError,
    MeshShape,
    any_of,
    checked_choices,
    load_extra,
    load_plugins,
    near_names,
)
from run_iree import available
from run_iree.devices import LAVAPIPE, vulkan_device_name
from runtime import Session
from runtime.dump import Dumper
from tapeline.bundle import VERIFY, Bundle, Verify

_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Dumps:
    """Dumps of an engine's calls.

    Attributes:
        open: function that opens a bundle such that the tensors of every call are dumped.
        module: function that returns the name of the bundle's file that runs then.
    """

    open: Callable[[Bundle, "Place", Dumper], Session]
    module: Callable[[Bundle, "Place"], str]


@checked_choices
@dataclass(frozen=True, slots=True)
class Engine:
    """Engine that runs bundles.

    Attributes:
        name: name by which ``engine=`` chooses it; lower-case letters, digits, ``_``, ``.`` and ``-``.
        devices: names of its devices; the first one is the default.
        open: function that opens a bundle at a place of this engine; the caller closes the session.
        meshes: whether it cuts a bundle over the devices of ``Place.mesh``.
        checkpoints: whether it reads weights by ``bundle.weights(place.checkpoint)``, so that bundles that were
            exported without run, too.
        dumps: function that dumps calls; None if it cannot.
        aliases: other names of devices, such as ``gpu``, with functions that return the device's name, or raise
            InputError if this machine lacks the device.

    Raises:
        ConfigError: the name is malformed, or devices are missing.
    """

    name: str
    devices: tuple[str, ...]
    open: Callable[[Bundle, "Place"], Session]
    meshes: bool = False
    checkpoints: bool = False
    dumps: Dumps | None = None
    aliases: Mapping[str, Callable[[], str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"engine {self.name!r}: the name begins with a lower-case letter, and has these, digits, '_', '.' and "
                f"'-' alone"
            )
        if not self.devices:
            raise ConfigError(f"engine {self.name!r}: name one device at least: the first is the default")


_ENGINES: Final[dict[str, Engine]] = {}


def register_engine(engine: Engine) -> Engine:
    """Registers and returns an engine; other packages may register further ones.

    Raises:
        ConfigError: the name is taken.
    """
    if engine.name in _ENGINES:
        raise ConfigError(f"engine {engine.name!r} is registered already: a name stands for one engine")
    _ENGINES[engine.name] = engine
    return engine


def engine_names() -> tuple[str, ...]:
    """Returns the names of all engines: this package's, then those that were registered.

    Raises:
        PluginError: an installed plugin cannot be loaded.
    """
    load_plugins()
    return tuple(_ENGINES)


def engine_named(name: str) -> Engine:
    """Returns the engine of a name.

    Raises:
        ChoiceError: the engine does not exist; lists the available ones.
        PluginError: an installed plugin cannot be loaded.

    >>> engine_named("jax").devices
    ('cpu', 'cuda', 'rocm', 'tpu')
    """
    names = engine_names()
    if name not in _ENGINES:
        raise ChoiceError(f"engine: expected one of {', '.join(names)}; found {name!r}{near_names(name, names)}")
    return _ENGINES[name]


def all_devices() -> tuple[str, ...]:
    """Returns the names of the devices of all engines, each once."""
    return tuple(dict.fromkeys(device for name in engine_names() for device in engine_named(name).devices))


def device_aliases() -> tuple[str, ...]:
    """Returns the other names of devices that engines take, each once."""
    return tuple(dict.fromkeys(alias for name in engine_names() for alias in engine_named(name).aliases))


@checked_choices
@dataclass(frozen=True, slots=True)
class Place:
    """Engine and devices on which bundles run.

    Attributes:
        engine: ``iree``, which runs what export compiled; ``jax``, by which XLA compiles the bundle's portable module;
            ``eager``, which runs the model by NumPy and compiles nothing; or the name of an engine that was registered.
        device: name of the device, one of the engine's; the engine's default if None. ``cpu`` and ``gpu`` are
            replaced by the device of that kind: of IREE ``local-task``, and ``cuda`` or ``vulkan``.
        mesh: axes of devices over which the bundle is cut; one device if None.
        checkpoint: directory of the weights of a bundle that was exported without; see ``Bundle.weights``.
        verify: when the files of a bundle are compared with their hashes; see ``tapeline.load``.
        trust_compiled: True runs compiled modules that this user did not compile; see ``tapeline.load``.

    Raises:
        InputError: the engine does not exist; or it lacks the device, does not support meshes, or takes weights only
            from an archive.
    """

    engine: str = "iree"
    device: str | None = None
    mesh: MeshShape | None = None
    checkpoint: Path | None = None
    verify: Verify = VERIFY[0]
    trust_compiled: bool = False

    def __post_init__(self) -> None:
        engine = engine_named(self.engine)
        if self.device is not None and self.device not in engine.devices and self.device in engine.aliases:
            object.__setattr__(self, "device", engine.aliases[self.device]())
        if self.device is not None and self.device not in engine.devices:
            raise InputError(
                f"device={self.device}: not a device of engine={self.engine}; available: {', '.join(engine.devices)}"
                f"{_others_with(self.device)}"
            )
        if self.mesh is not None and not engine.meshes:
            others = any_of([name for name in engine_names() if engine_named(name).meshes])
            raise InputError(f"mesh={self.mesh} goes with engine={others}: {self.engine} runs a bundle on one device")
        if self.checkpoint is not None and not engine.checkpoints:
            others = any_of([name for name in engine_names() if engine_named(name).checkpoints])
            raise InputError(
                f"checkpoint={self.checkpoint} goes with engine={others}: {self.engine} maps an archive: export with "
                f"weights=external"
            )

    @property
    def name(self) -> str:
        """Name of the device: the requested one, or the engine's first."""
        return self.device or engine_named(self.engine).devices[0]

    def dumps(self) -> Dumps:
        """Returns the function that dumps calls there.

        Raises:
            InputError: the engine does not support dumps.
        """
        dumps = engine_named(self.engine).dumps
        if dumps is None:
            others = any_of([name for name in engine_names() if engine_named(name).dumps is not None])
            raise InputError(
                f"`dump` goes with engine={others}, which trace tensors of the debug module; engine={self.engine} has "
                f"no such traces: compare names the first tensor that departs there"
            )
        return dumps


def _others_with(device: str) -> str:
    """Returns the engine that has a device, as the end of a message; empty if none has it."""
    others = [name for name in engine_names() if device in engine_named(name).devices]
    return f": with engine={others[0]} it is one" if others else ""


def _iree_gpu() -> str:
    """Returns the GPU of this machine that IREE runs on; Mesa's Vulkan driver for CPUs is none.

    Raises:
        InputError: there is none.
    """
    for name in _IREE_GPUS:
        if available(name)[0] and (name != "vulkan" or not (vulkan_device_name() or "").startswith(LAVAPIPE)):
            return name
    reasons = "; ".join(f"{name}: {available(name)[1]}" for name in _IREE_GPUS)
    raise InputError(f"device=gpu: this machine has no GPU that IREE runs on ({reasons}): leave `device` out")


def _loaded(module: str) -> ModuleType:
    if module != JAX:
        return importlib.import_module(module)
    return load_extra(module, "jax", "engine=jax")


def _open_by(module: str, bundle: Bundle, place: Place) -> Session:
    return _loaded(module).open_bundle(bundle, place)


def _open_dumped_by(module: str, bundle: Bundle, place: Place, dumper: Dumper) -> Session:
    return _loaded(module).open_dumped(bundle, place, dumper)


def _dumped_module_by(module: str, bundle: Bundle, place: Place) -> str:
    return _loaded(module).dumped_module(bundle, place)


def _dumps(module: str) -> Dumps:
    return Dumps(functools.partial(_open_dumped_by, module), functools.partial(_dumped_module_by, module))


JAX: Final = "tapeline.backends._jax"
"""Module of the engine that loads JAX when it is imported."""

DEVICES: Final = {
    "iree": ("local-task", "local-sync", "vmvx", "vulkan", "cuda"),
    "jax": ("cpu", "cuda", "rocm", "tpu"),
}
"""Devices of the engines that compile; the first is the default of IREE, JAX chooses itself."""

ENGINES: Final = tuple(DEVICES)
"""Names of the engines that compile."""

_IREE: Final = "tapeline.backends._iree"
_EAGER: Final = "tapeline.backends._eager"
_IREE_GPUS: Final = ("cuda", "vulkan")
_IREE_ALIASES: Final = {"cpu": lambda: "local-task", "gpu": _iree_gpu}
_JAX_ALIASES: Final = {"gpu": lambda: "cuda"}

register_engine(
    Engine(
        "iree",
        DEVICES["iree"],
        functools.partial(_open_by, _IREE),
        dumps=_dumps(_IREE),
        aliases=_IREE_ALIASES,
    )
)
register_engine(
    Engine(
        "jax",
        DEVICES["jax"],
        functools.partial(_open_by, JAX),
        meshes=True,
        checkpoints=True,
        dumps=_dumps(JAX),
        aliases=_JAX_ALIASES,
    )
)
register_engine(Engine("eager", ("host",), functools.partial(_open_by, _EAGER), checkpoints=True))
