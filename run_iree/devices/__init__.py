"""Devices: available devices, the targets they run, their limits and buffers."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from run_iree.devices._buffers import address, duplicate, peek, read_back, upload, writable
    from run_iree.devices._cpu import CpuRecord, host_cpu
    from run_iree.devices._device_targets import DEVICES_OF, TARGETS, target_of_device
    from run_iree.devices._devices import (
        DEVICES,
        IREE_ERRORS,
        LAVAPIPE,
        MOST_BINDINGS,
        Device,
        available,
        reason,
        too_many_buffers,
        vulkan_device_name,
    )

export_lazily(__name__)
