"""Facts of this machine that affect features and speed."""

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lang_core import has_extra, load_extra, plugin_versions
from run_iree import DEVICES, available, host_cpu
from run_iree.kernels import missing_features, registered_kernels
from tapeline.backends import engine_named, engine_names
from tapeline.cli import VERSION
from tapeline.command._cache_folders import CacheFolder, cache_folders
from tapeline.hub import HubState, hub_state

_PACKAGES: Final = (
    "numpy",
    "ml_dtypes",
    "jax",
    "jaxlib",
    "iree-base-compiler",
    "iree-base-runtime",
    "safetensors",
    "gguf",
    "tokenizers",
    "huggingface_hub",
)


@dataclass(frozen=True, slots=True)
class DeviceState:
    """Device of IREE on this machine.

    Attributes:
        name: one of ``run_iree.DEVICES``.
        present: whether it can be opened.
        detail: its driver, or the reason why it cannot.
    """

    name: str
    present: bool
    detail: str


@dataclass(frozen=True, slots=True)
class InstructionSetState:
    """Instruction set that Tapeline has kernels for.

    Attributes:
        name: ``vnni``, ``bf16``, ``avx512``, ``fma``, or the name of one that a plugin registered.
        missing: features that the CPU lacks; none if its kernels are used.
    """

    name: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EngineState:
    """Engine that runs bundles.

    Attributes:
        name: name by which ``engine=`` chooses it.
        devices: names of its devices that this machine has; of an engine of a plugin all, for it is not asked.
    """

    name: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Facts of this machine. They have neither its name nor users nor tokens.

    Attributes:
        versions: of Tapeline, Python and packages, by name; "not installed" if one is absent.
        system: operating system, its release and the architecture.
        cpu: model of the CPU as the kernel names it; empty if it names none.
        cores: cores that this process may use.
        kernels: instruction sets that Tapeline and plugins have kernels for.
        plugins: package and version of each plugin, by name.
        registered_kernels: kinds of helper functions that plugins have CPU kernels for, with their instruction sets.
        engines: engines that run bundles, those of plugins after Tapeline's.
        absent_devices: names of the devices that this machine lacks, by engine.
        memory_bytes: all memory of the machine.
        memory_available_bytes: memory that can be used without swapping; 0 if the system does not say.
        devices: IREE's devices.
        jax_devices: JAX's devices, as JAX names their kinds.
        caches: folders of things that can be made or fetched again.
        hub: state of the hub's client.
    """

    versions: dict[str, str]
    system: str
    cpu: str
    cores: int
    kernels: tuple[InstructionSetState, ...]
    plugins: dict[str, str]
    registered_kernels: tuple[str, ...]
    engines: tuple[EngineState, ...]
    absent_devices: dict[str, tuple[str, ...]]
    memory_bytes: int
    memory_available_bytes: int
    devices: tuple[DeviceState, ...]
    jax_devices: tuple[str, ...]
    caches: tuple[CacheFolder, ...]
    hub: HubState


def _present(engine: str) -> tuple[str, ...]:
    """Returns the devices of an engine that are there; all those of an engine of a plugin."""
    devices = engine_named(engine).devices
    if engine == "iree":
        return tuple(device for device in devices if available(device)[0])
    if engine == "jax":
        present = {_jax_name(device) for device in _jax_devices()}
        return tuple(device for device in devices if device in present)
    return devices


def _absent(engine: EngineState) -> tuple[str, ...]:
    return tuple(device for device in engine_named(engine.name).devices if device not in engine.devices)


def _jax_name(device: str) -> str:
    """Returns our name of a device of JAX, which calls the GPUs of all makers ``gpu``.

    >>> _jax_name("gpu: 1 x NVIDIA H200"), _jax_name("gpu: 2 x AMD Instinct MI300X"), _jax_name("cpu: 1 x cpu")
    ('cuda', 'rocm', 'cpu')
    """
    platform, _, kind = device.partition(": ")
    if platform != "gpu":
        return platform
    return "rocm" if any(word in kind for word in ("AMD", "Instinct", "Radeon", "gfx")) else "cuda"


def diagnose() -> Diagnosis:
    """Returns the facts; loads JAX, and asks nothing of the network."""
    cpu, kernels = host_cpu(), registered_kernels()
    engines = tuple(EngineState(name, _present(name)) for name in engine_names())
    return Diagnosis(
        versions={"tapeline": VERSION, "Python": platform.python_version()}
        | {name: _version(name) for name in _PACKAGES},
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=cpu.name,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        kernels=tuple(InstructionSetState(name, missing) for name, missing in missing_features(cpu.features).items()),
        plugins=plugin_versions(),
        registered_kernels=tuple(f"{kernel.kind}: {kernel.instruction_set or 'any CPU'}" for kernel in kernels),
        engines=engines,
        absent_devices={engine.name: absent for engine in engines if (absent := _absent(engine))},
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        memory_available_bytes=_available_memory(),
        devices=tuple(DeviceState(name, *available(name)) for name in DEVICES),
        jax_devices=_jax_devices(),
        caches=tuple(cache_folders()),
        hub=hub_state(),
    )


def _jax_devices() -> tuple[str, ...]:
    return tuple(load_extra("run_jax", "jax", "JAX").jax_devices()) if has_extra("jax") else ()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _available_memory() -> int:
    path = Path("/proc/meminfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        name, _, size = line.partition(":")
        if name == "MemAvailable":
            return int(size.split()[0]) << 10
    return 0
