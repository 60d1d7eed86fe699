"""Compiling: targets with their flags and tiles, the IREE compiler as a process, its report, the cache of modules."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from run_iree.compiler._bindings import check_bindings
    from run_iree.compiler._block_calls import OutlineRule
    from run_iree.compiler._check_text import check_text
    from run_iree.compiler._compile import CompileReport, compile_module, compiler_path
    from run_iree.compiler._data_tiling import tiling_flags
    from run_iree.compiler._eviction import evict, is_locked
    from run_iree.compiler._locate import ModuleLocation, locate
    from run_iree.compiler._module_cache import ModuleCache
    from run_iree.compiler._schedule import Schedule
    from run_iree.compiler._targets import (
        DATA_TILING,
        Target,
        target_named,
    )

export_lazily(__name__)
