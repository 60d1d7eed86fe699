"""IREE: compiles modules, opens devices, runs compiled modules.

>>> from run_iree import target_of_device
>>> target_of_device("vulkan")
'vulkan-spirv'
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from run_iree.compiler import (
        DATA_TILING,
        CompileReport,
        ModuleCache,
        ModuleLocation,
        Schedule,
        Target,
        check_bindings,
        check_text,
        compile_module,
        compiler_path,
        evict,
        is_locked,
        locate,
        target_named,
        tiling_flags,
    )
    from run_iree.devices import DEVICES, TARGETS, CpuRecord, Device, available, host_cpu, target_of_device
    from run_iree.sessions import (
        DeviceTensor,
        Function,
        HeldTensors,
        HostFunction,
        Results,
        Session,
        Updating,
    )

export_lazily(__name__)
