"""Bundles: the directory that an export writes and everything else reads. docs/bundle.md describes the files."""

from tapeline.bundle._bundle import Bundle
from tapeline.bundle._companions import SecondModule, tolerance_of
from tapeline.bundle._debug import DebugConfig, debug_config
from tapeline.bundle._dumping import dumping
from tapeline.bundle._files import (
    ARCHIVE,
    ARTIFACT,
    DEBUG_MODULE,
    MARK,
    MODULE,
    PER_DEVICE,
    REPORT,
    SCOPE,
    debug_executable_name,
    executable_name,
    sha256_of,
)
from tapeline.bundle._kernel_config import KernelConfig, signature_fields
from tapeline.bundle._kernels import KernelRecord, kernel_record
from tapeline.bundle._mesh import MeshTable, table_on
from tapeline.bundle._phases import Memory, PhaseCost, PhaseMeter, memory_now
from tapeline.bundle._staging import check_output, staged
from tapeline.bundle._steps import Steps

__all__ = [
    "ARCHIVE",
    "ARTIFACT",
    "DEBUG_MODULE",
    "MARK",
    "MODULE",
    "PER_DEVICE",
    "REPORT",
    "SCOPE",
    "Bundle",
    "DebugConfig",
    "KernelConfig",
    "KernelRecord",
    "Memory",
    "MeshTable",
    "PhaseCost",
    "PhaseMeter",
    "SecondModule",
    "Steps",
    "check_output",
    "debug_config",
    "debug_executable_name",
    "dumping",
    "executable_name",
    "kernel_record",
    "memory_now",
    "sha256_of",
    "signature_fields",
    "staged",
    "table_on",
    "tolerance_of",
]
