"""Bundles: the directory that an export writes and everything else reads. docs/bundle.md describes the files."""

from tapeline.bundle._bundle import ARCHIVE, ARTIFACT, MODULE, SCOPE, Bundle, executable_name, signature
from tapeline.bundle._debug import DEBUG_MODULE, DebugConfig, debug_config, debug_executable_name, dumping
from tapeline.bundle._kernel_config import (
    ArgumentConfig,
    EntryPointConfig,
    KernelConfig,
    KernelRecord,
    ResultConfig,
    entry_point_config,
    kernel_record,
)
from tapeline.bundle._phases import Memory, PhaseCost, PhaseMeter, memory_now
from tapeline.bundle._sha256 import sha256_of
from tapeline.bundle._staging import MARK, REPORT, check_output, staged
from tapeline.bundle._steps import Steps

__all__ = [
    "ARCHIVE",
    "ARTIFACT",
    "DEBUG_MODULE",
    "MARK",
    "MODULE",
    "REPORT",
    "SCOPE",
    "ArgumentConfig",
    "Bundle",
    "DebugConfig",
    "EntryPointConfig",
    "KernelConfig",
    "KernelRecord",
    "Memory",
    "PhaseCost",
    "PhaseMeter",
    "ResultConfig",
    "Steps",
    "check_output",
    "debug_config",
    "debug_executable_name",
    "dumping",
    "entry_point_config",
    "executable_name",
    "kernel_record",
    "memory_now",
    "sha256_of",
    "signature",
    "staged",
]
