"""Bundles: the directory that an export writes and everything else reads. docs/bundle.md describes the files."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.bundle._bundle import FORMER_NAMES, Bundle
    from tapeline.bundle._checks import VERIFY, BundleChecks, Verify
    from tapeline.bundle._companions import SecondModule, tolerance_of
    from tapeline.bundle._compiled import TRUST, compiled_target, note_compiled_here
    from tapeline.bundle._debug import DebugConfig, debug_config
    from tapeline.bundle._dumping import dumping
    from tapeline.bundle._files import (
        ARCHIVE,
        ARTIFACT,
        DEBUG_MODULE,
        LOSSES,
        MARK,
        MODULE,
        PER_DEVICE,
        REPORT,
        SCOPE,
        debug_executable_name,
        executable_name,
        sha256_of,
    )
    from tapeline.bundle._keeping import LOCKS, is_kept, keep_cached
    from tapeline.bundle._kernel_config import KernelConfig, signature_fields
    from tapeline.bundle._kernels import KernelRecord, kernel_record
    from tapeline.bundle._mesh import MeshTable, table_on
    from tapeline.bundle._module_cache import MODULE_CACHE, module_cache
    from tapeline.bundle._phases import PhaseCost, PhaseMeter, ProcessMemory, memory_now
    from tapeline.bundle._staging import check_output, staged, typed_refusals
    from tapeline.bundle._steps import Steps
    from tapeline.bundle._text_settings import TextSettings
    from tapeline.bundle._trust import RECORDS, note_matching

export_lazily(__name__)
