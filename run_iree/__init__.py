"""IREE: compiling modules, opening devices, running what was compiled.

>>> from run_iree import target_of_device
>>> target_of_device("vulkan")
'vulkan-spirv'
"""

from run_iree._bindings import check_bindings
from run_iree._compile import CompileReport, compile_module
from run_iree._counters import Counters
from run_iree._device_tensor import DeviceTensor
from run_iree._devices import DEVICES, Device, available
from run_iree._function import Function
from run_iree._held import HeldTensors, Results
from run_iree._host_function import HostFunction
from run_iree._locate import Place, locate
from run_iree._schedule import Schedule
from run_iree._session import Session
from run_iree._targets import DATA_TILING, TARGETS, CpuRecord, Target, host_cpu, target_named, target_of_device
from run_iree._updating import Updating

__all__ = [
    "DATA_TILING",
    "DEVICES",
    "TARGETS",
    "CompileReport",
    "Counters",
    "CpuRecord",
    "Device",
    "DeviceTensor",
    "Function",
    "HostFunction",
    "HeldTensors",
    "Place",
    "Results",
    "Schedule",
    "Session",
    "Target",
    "Updating",
    "available",
    "check_bindings",
    "compile_module",
    "host_cpu",
    "locate",
    "target_named",
    "target_of_device",
]
