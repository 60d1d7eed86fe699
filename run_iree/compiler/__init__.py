"""Compiling: targets with their flags and tiles, the IREE compiler as a process, and what it reports."""

from run_iree.compiler._bindings import check_bindings
from run_iree.compiler._compile import CompileReport, compile_module
from run_iree.compiler._locate import Place, locate
from run_iree.compiler._schedule import Schedule
from run_iree.compiler._targets import (
    DATA_TILING,
    TARGETS,
    CpuRecord,
    Target,
    host_cpu,
    target_named,
    target_of_device,
)

__all__ = [
    "DATA_TILING",
    "TARGETS",
    "CompileReport",
    "CpuRecord",
    "Place",
    "Schedule",
    "Target",
    "check_bindings",
    "compile_module",
    "host_cpu",
    "locate",
    "target_named",
    "target_of_device",
]
