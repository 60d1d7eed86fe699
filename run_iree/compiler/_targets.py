"""Table of compile targets: compiler flags, and the devices that run the result."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from lang_core import CompileError, near_names
from run_iree.compiler._block_calls import OutlineRule
from run_iree.compiler._matvec_tiles import MatvecTiles
from run_iree.devices import DEVICES_OF, LAVAPIPE, TARGETS, CpuRecord, host_cpu, vulkan_device_name
from run_iree.kernels import CpuKernels

# Lays out weights in tiles when the module is loaded: products of matrices are faster, and weights are held twice.
DATA_TILING: Final = "--iree-opt-data-tiling=true"
"""Flag of the compiler that lays out weights in tiles when the module is loaded."""

_LOCAL: Final = ("--iree-hal-target-device=local",)

# f64 is kept: by default the compiler silently turns f64 arguments and results of public functions into f32.
_INPUT: Final = ("--iree-input-type=stablehlo", "--iree-input-demote-f64-to-f32=false")

# Without the last flag a 128-token RMSNorm exceeds the stack limit of a CPU dispatch at O2.
_OPTIMISED: Final = ("--iree-opt-level=O2", "--iree-dispatch-creation-enable-aggressive-fusion=false")

# Skips the verification after every pass, a fifth to a quarter of the time; the input is verified in any case. Not for
# vmvx and vulkan-spirv, where these checks refuse what the device cannot compute: arithmetic in f16, vectors of bf16.
_UNCHECKED: Final = ("--verify=false",)

# Compiler's Vulkan target by a word in the device's name. The compiler's default is left out on purpose: with it
# 16-bit and 8-bit weights are silently wrong.
_VULKAN_TARGETS: Final[Mapping[str, str]] = MappingProxyType(
    {LAVAPIPE: "llvmpipe", "nvidia": "ampere", "geforce": "turing", "radeon": "rdna2"}
)


@dataclasses.dataclass(frozen=True)
class Target:
    """Compile target: compiler flags, tiles and kernels for a kind of device.

    Attributes:
        name: ``llvm-cpu``, ``vmvx``, ``vulkan-spirv`` or ``cuda``.
        flags: compiler flags.
        devices: names of the devices that run the result.
        cpu: CPU that the result is for; None if it does not matter.
        matvec_tiles: tiles of matrix-vector products; None for the compiler's own.
        kernels: kernels that replace helper functions; None if their StableHLO is compiled.
        outline: condition on which a block function is compiled as a function; None if all are inlined.
        unchecked: flags that skip the compiler's checks of itself and do not change the result.
    """

    name: str
    flags: tuple[str, ...]
    devices: tuple[str, ...]
    cpu: CpuRecord | None = None
    matvec_tiles: MatvecTiles | None = None
    kernels: CpuKernels | None = None
    outline: OutlineRule | None = None
    unchecked: tuple[str, ...] = ()

    def outline_beside(self, flags: Sequence[str]) -> OutlineRule | None:
        """Returns the rule to use with these flags: none with data tiling, which lays out weights outside of calls."""
        return None if DATA_TILING in flags else self.outline

    def tiles_beside(self, flags: Sequence[str]) -> MatvecTiles | None:
        """Returns the tiles to use with these flags: none with data tiling, which lays out such products itself.

        IREE 3.13 fails if it gets both (``failed to build pass pipeline``).
        """
        return None if DATA_TILING in flags else self.matvec_tiles


def target_named(
    name: str, *, cpu: str = "host", vulkan_target: str | None = None, cuda_target: str = "sm_80"
) -> Target:
    """Returns the target of a name.

    Args:
        name: one of ``TARGETS``.
        cpu: CPU of llvm-cpu: ``host`` (the module runs on CPUs like this one only), ``generic``, or a CPU that the
            compiler knows.
        vulkan_target: the compiler's target of vulkan-spirv; None chooses by this machine's device, llvmpipe if none.
        cuda_target: GPU architecture of cuda; newer GPUs compile the PTX of an older one when the module is loaded.

    Raises:
        CompileError: the target is unknown, or none is known for the Vulkan device of this machine.
    """
    if name == "llvm-cpu":
        flags = (*_LOCAL, "--iree-hal-local-target-device-backends=llvm-cpu", f"--iree-llvmcpu-target-cpu={cpu}")
        record = host_cpu() if cpu == "host" else CpuRecord(cpu, cpu, ())
        kernels = CpuKernels.of(record.features, record.name)
        flags = (*_INPUT, *flags, *_OPTIMISED)
        return Target(name, flags, DEVICES_OF[name], record, MatvecTiles(), kernels, OutlineRule(), _UNCHECKED)
    if name == "vmvx":
        return Target(name, (*_INPUT, *_LOCAL, "--iree-hal-local-target-device-backends=vmvx"), DEVICES_OF[name])
    if name == "vulkan-spirv":  # no optimisation level: O2 does not legalise there
        chosen = vulkan_target or _vulkan_target_of(vulkan_device_name())
        flags = ("--iree-hal-target-device=vulkan", f"--iree-vulkan-target={chosen}")
        return Target(name, (*_INPUT, *flags), DEVICES_OF[name])
    if name == "cuda":
        flags = ("--iree-hal-target-device=cuda", f"--iree-cuda-target={cuda_target}")
        return Target(name, (*_INPUT, *flags, *_OPTIMISED), DEVICES_OF[name])
    raise CompileError(f"target {name!r} not found; available: {', '.join(TARGETS)}{near_names(name, TARGETS)}")


def _vulkan_target_of(device_name: str | None) -> str:
    if device_name is None:
        return "llvmpipe"
    for word, target in _VULKAN_TARGETS.items():
        if word in device_name.lower():
            return target
    raise CompileError(
        f"no Vulkan target is known for the device {device_name!r}: name one (vulkan_target=...); "
        f"the compiler's default target silently computes wrong 16-bit and 8-bit values"
    )
