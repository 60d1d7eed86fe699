"""The one table of compile targets: their flags, and the devices that run what comes out."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from lang_core import CompileError, near_names
from run_iree.compiler._matvec_tiles import MatvecTiles
from run_iree.devices import LAVAPIPE, vulkan_device_name
from run_iree.kernels import CpuKernels

# Weights are laid out anew when the module is loaded, in tiles. Products of matrices are faster; they are held twice.
DATA_TILING: Final = "--iree-opt-data-tiling=true"

_LOCAL: Final = ("--iree-hal-target-device=local",)

# f64 is kept: by default the compiler silently turns f64 arguments and results of public functions into f32.
_INPUT: Final = ("--iree-input-type=stablehlo", "--iree-input-demote-f64-to-f32=false")

# Without the last flag a 128-token RMSNorm exceeds the stack limit of a CPU dispatch at O2.
_OPTIMISED: Final = ("--iree-opt-level=O2", "--iree-dispatch-creation-enable-aggressive-fusion=false")

# The compiler verifies the module after each of its passes: a fifth to a quarter of the time, for the same result.
# What it is given is verified in any case. Not for vmvx and vulkan-spirv, where these checks refuse what the device
# cannot compute with: arithmetic in f16, vectors of bf16.
_UNCHECKED: Final = ("--verify=false",)

# The words in a Vulkan device's name that tell which of the compiler's Vulkan targets fits it. The compiler's own
# default target is left out on purpose: with it 16-bit and 8-bit weights are silently wrong.
_VULKAN_TARGETS: Final[Mapping[str, str]] = MappingProxyType(
    {LAVAPIPE: "llvmpipe", "nvidia": "ampere", "geforce": "turing", "radeon": "rdna2"}
)


@dataclasses.dataclass(frozen=True)
class CpuRecord:
    """The CPU that a module was compiled for, as a bundle records it.

    Attributes:
        target: what the compiler was told, for example ``host`` or ``generic``.
        name: the model name of this machine's CPU where the target is ``host``, else the target.
        features: the instruction-set flags of this machine's CPU where the target is ``host``, else empty: not known.
    """

    target: str
    name: str
    features: tuple[str, ...]

    def missing_here(self) -> tuple[str, ...]:
        """Returns the recorded features that the CPU of this machine lacks."""
        here = frozenset(host_cpu().features)
        return tuple(feature for feature in self.features if feature not in here)


@dataclasses.dataclass(frozen=True)
class Target:
    """What one module is compiled for.

    Attributes:
        name: ``llvm-cpu``, ``vmvx``, ``vulkan-spirv`` or ``cuda``.
        flags: of the compiler.
        devices: names of the devices that run the result.
        cpu: the CPU it is for; None where that is of no matter.
        matvec_tiles: of matrix-vector products; None where the compiler's own are taken.
        kernels: that take the place of helper functions; None where the StableHLO is compiled.
        unchecked: flags that spare the compiler its checks of itself, and change nothing of what it makes.
    """

    name: str
    flags: tuple[str, ...]
    devices: tuple[str, ...]
    cpu: CpuRecord | None = None
    matvec_tiles: MatvecTiles | None = None
    kernels: CpuKernels | None = None
    unchecked: tuple[str, ...] = ()

    def tiles_beside(self, flags: Sequence[str]) -> MatvecTiles | None:
        """The matvec tiles to give beside more flags: none with data tiling, which lays such products out itself.

        IREE 3.13 fails where it is given both (``failed to build pass pipeline``).
        """
        return None if DATA_TILING in flags else self.matvec_tiles


_DEVICES_OF: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "llvm-cpu": ("local-task", "local-sync"),
        "vmvx": ("vmvx",),
        "vulkan-spirv": ("vulkan",),
        "cuda": ("cuda",),
    }
)

TARGETS: Final = tuple(_DEVICES_OF)


def target_named(
    name: str, *, cpu: str = "host", vulkan_target: str | None = None, cuda_target: str = "sm_80"
) -> Target:
    """Returns the target of a name.

    Args:
        name: one of ``TARGETS``.
        cpu: for llvm-cpu: ``host`` (the module runs on CPUs like this one only), ``generic``, or a CPU that the
            compiler knows.
        vulkan_target: for vulkan-spirv; None chooses by the device of this machine, and llvmpipe where it has none.
        cuda_target: for cuda; newer GPUs compile the PTX of an older target when the module is loaded.

    Raises:
        CompileError: there is no such target, or none is known for the Vulkan device of this machine.
    """
    if name == "llvm-cpu":
        flags = (*_LOCAL, "--iree-hal-local-target-device-backends=llvm-cpu", f"--iree-llvmcpu-target-cpu={cpu}")
        record = host_cpu() if cpu == "host" else CpuRecord(cpu, cpu, ())
        kernels = CpuKernels.of(record.features, record.name)
        flags = (*_INPUT, *flags, *_OPTIMISED)
        return Target(name, flags, _DEVICES_OF[name], record, MatvecTiles(), kernels, _UNCHECKED)
    if name == "vmvx":
        return Target(name, (*_INPUT, *_LOCAL, "--iree-hal-local-target-device-backends=vmvx"), _DEVICES_OF[name])
    if name == "vulkan-spirv":  # no optimisation level: O2 does not legalise there
        chosen = vulkan_target or _vulkan_target_of(vulkan_device_name())
        flags = ("--iree-hal-target-device=vulkan", f"--iree-vulkan-target={chosen}")
        return Target(name, (*_INPUT, *flags), _DEVICES_OF[name])
    if name == "cuda":
        flags = ("--iree-hal-target-device=cuda", f"--iree-cuda-target={cuda_target}")
        return Target(name, (*_INPUT, *flags, *_OPTIMISED), _DEVICES_OF[name])
    raise CompileError(f"unknown target {name!r}: known are {', '.join(TARGETS)}{near_names(name, TARGETS)}")


def target_of_device(device: str) -> str:
    """Returns the name of the target whose modules a device runs.

    Raises:
        CompileError: there is no such device.

    >>> target_of_device("local-task")
    'llvm-cpu'
    """
    for target, devices in _DEVICES_OF.items():
        if device in devices:
            return target
    known = [name for names in _DEVICES_OF.values() for name in names]
    raise CompileError(f"no target is for device {device!r}: known are {', '.join(known)}{near_names(device, known)}")


def _vulkan_target_of(device_name: str | None) -> str:
    if device_name is None:
        return "llvmpipe"
    for word, target in _VULKAN_TARGETS.items():
        if word in device_name.lower():
            return target
    raise CompileError(
        f"no Vulkan target is known for the device {device_name!r}: name one (vulkan_target=...); "
        f"the compiler's default target computes 16-bit and 8-bit values wrongly without saying so"
    )


@functools.cache
def host_cpu() -> CpuRecord:
    """Returns this machine's CPU; its name and features are empty where /proc/cpuinfo does not tell."""
    fields: dict[str, str] = {}
    path = Path("/proc/cpuinfo")
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    features = fields.get("flags") or fields.get("Features") or ""
    return CpuRecord("host", fields.get("model name", ""), tuple(sorted(features.split())))
