"""IREE: compiling modules, opening devices, running what was compiled.

>>> from compile_hlo.iree import target_of_device
>>> target_of_device("vulkan")
'vulkan-spirv'
"""

from compile_hlo.iree._bindings import check_bindings
from compile_hlo.iree._compile import CompileReport, compile_module
from compile_hlo.iree._counters import Counters
from compile_hlo.iree._device_tensor import DeviceTensor
from compile_hlo.iree._devices import DEVICES, Device, available
from compile_hlo.iree._function import Function
from compile_hlo.iree._held import HeldTensors, Results
from compile_hlo.iree._host_function import HostFunction
from compile_hlo.iree._locate import Place, locate
from compile_hlo.iree._schedule import Schedule
from compile_hlo.iree._session import Session
from compile_hlo.iree._signature import ArgumentSpec, ResultSpec, Signature
from compile_hlo.iree._targets import DATA_TILING, TARGETS, CpuRecord, Target, host_cpu, target_named, target_of_device
from compile_hlo.iree._updating import Updating

__all__ = [
    "DATA_TILING",
    "DEVICES",
    "TARGETS",
    "ArgumentSpec",
    "CompileReport",
    "Counters",
    "CpuRecord",
    "Device",
    "DeviceTensor",
    "Function",
    "HostFunction",
    "HeldTensors",
    "Place",
    "ResultSpec",
    "Results",
    "Schedule",
    "Session",
    "Signature",
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
