"""Targets that modules are compiled for, and the devices that run them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lang_core import CompileError, near_names

DEVICES_OF: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "llvm-cpu": ("local-task", "local-sync"),
        "vmvx": ("vmvx",),
        "vulkan-spirv": ("vulkan",),
        "cuda": ("cuda",),
    }
)
"""Devices that run the modules of each target."""

TARGETS: Final = tuple(DEVICES_OF)
"""Targets that modules are compiled for."""


def target_of_device(device: str) -> str:
    """Returns the name of the target for a device.

    Raises:
        CompileError: the device is unknown.

    >>> target_of_device("local-task")
    'llvm-cpu'
    """
    for target, devices in DEVICES_OF.items():
        if device in devices:
            return target
    known = [name for names in DEVICES_OF.values() for name in names]
    raise CompileError(f"device {device!r} not found; available: {', '.join(known)}{near_names(device, known)}")
