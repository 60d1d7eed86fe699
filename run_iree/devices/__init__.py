"""Devices: available devices, their limits and buffers."""

from run_iree.devices._buffers import address, duplicate, peek, read_back, upload, writable
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

__all__ = [
    "DEVICES",
    "IREE_ERRORS",
    "LAVAPIPE",
    "MOST_BINDINGS",
    "Device",
    "address",
    "available",
    "duplicate",
    "peek",
    "read_back",
    "reason",
    "too_many_buffers",
    "upload",
    "vulkan_device_name",
    "writable",
]
